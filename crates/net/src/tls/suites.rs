//! Parses the TLS versions and ciphers of nginx's settings. rustls supports only some of them.

use rustls::crypto::aws_lc_rs::cipher_suite as suite;
use rustls::{
    CipherSuite, ProtocolVersion, ServerConnection, SupportedCipherSuite, SupportedProtocolVersion,
};

/// The offered TLS versions. rustls supports no older versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Versions {
    pub tls12: bool,
    pub tls13: bool,
}

impl Versions {
    pub const BOTH: Self = Self {
        tls12: true,
        tls13: true,
    };

    pub fn is_empty(self) -> bool {
        !self.tls12 && !self.tls13
    }

    /// Returns the versions that are in `self` and in `other`.
    pub fn and(self, other: Self) -> Self {
        Self {
            tls12: self.tls12 && other.tls12,
            tls13: self.tls13 && other.tls13,
        }
    }

    pub(super) fn supported(self) -> Vec<&'static SupportedProtocolVersion> {
        let both = [
            (self.tls13, &rustls::version::TLS13),
            (self.tls12, &rustls::version::TLS12),
        ];
        let wanted = both.into_iter().filter(|(wanted, _)| *wanted);
        wanted.map(|(_, version)| version).collect()
    }
}

/// The parsed value of a setting, and the names in it that are not supported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Read<T> {
    pub value: T,
    /// Names that nginx or OpenSSL accepts but that this gateway does not support.
    pub lacking: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SuiteError {
    #[error("`{0}` is no TLS version; TLSv1.2 and TLSv1.3 are")]
    Version(String),
    #[error("`{0}` is no cipher and no group of ciphers")]
    Cipher(String),
    #[error("no cipher is left: rustls has only ECDHE with AES-GCM or ChaCha20-Poly1305")]
    NoCipher,
    #[error("no TLS version is left: TLSv1.2 and TLSv1.3 are offered here")]
    NoVersion,
}

/// Parses a list of versions such as `TLSv1.2 TLSv1.3`.
pub fn read_versions(setting: &str) -> Result<Read<Versions>, SuiteError> {
    let mut read = Read {
        value: Versions {
            tls12: false,
            tls13: false,
        },
        lacking: Vec::new(),
    };
    for name in setting.split([' ', ',']).filter(|name| !name.is_empty()) {
        match name {
            "TLSv1.2" => read.value.tls12 = true,
            "TLSv1.3" => read.value.tls13 = true,
            "SSLv2" | "SSLv3" | "TLSv1" | "TLSv1.1" => read.lacking.push(name.to_owned()),
            _ => return Err(SuiteError::Version(name.to_owned())),
        }
    }
    if read.value.is_empty() {
        return Err(SuiteError::NoVersion);
    }
    Ok(read)
}

/// A supported TLS 1.2 cipher. `words` are signature, cipher and hash, each a word that may select it in OpenSSL's
/// cipher lists.
struct OpensslCipher {
    name: &'static str,
    suite: SupportedCipherSuite,
    words: [&'static str; 3],
}

static KNOWN: [OpensslCipher; 6] = [
    OpensslCipher {
        name: "ECDHE-ECDSA-AES256-GCM-SHA384",
        suite: suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
        words: ["ECDSA", "AES256", "SHA384"],
    },
    OpensslCipher {
        name: "ECDHE-RSA-AES256-GCM-SHA384",
        suite: suite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
        words: ["RSA", "AES256", "SHA384"],
    },
    OpensslCipher {
        name: "ECDHE-ECDSA-CHACHA20-POLY1305",
        suite: suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
        words: ["ECDSA", "CHACHA20", ""],
    },
    OpensslCipher {
        name: "ECDHE-RSA-CHACHA20-POLY1305",
        suite: suite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
        words: ["RSA", "CHACHA20", ""],
    },
    OpensslCipher {
        name: "ECDHE-ECDSA-AES128-GCM-SHA256",
        suite: suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
        words: ["ECDSA", "AES128", ""],
    },
    OpensslCipher {
        name: "ECDHE-RSA-AES128-GCM-SHA256",
        suite: suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
        words: ["RSA", "AES128", ""],
    },
];

impl OpensslCipher {
    fn has(&self, word: &str) -> bool {
        let [signature, cipher, hash] = self.words;
        match word {
            "ALL" | "DEFAULT" | "HIGH" | "TLSv1.2" | "ECDH" | "ECDHE" | "EECDH" | "kECDHE"
            | "kEECDH" | "AEAD" => true,
            "AES" | "AESGCM" => cipher.starts_with("AES"),
            "FIPS" => cipher.starts_with("AES"),
            "SUITEB128" | "SUITEB192" => signature == "ECDSA" && cipher.starts_with("AES"),
            "aECDSA" => signature == "ECDSA",
            // The word `RSA` does not match: in OpenSSL it selects ciphers with RSA key exchange, which rustls does not
            // support.
            "aRSA" => signature == "RSA",
            "ECDSA" => signature == word,
            _ => !word.is_empty() && [self.name, cipher, hash].contains(&word),
        }
    }
}

/// Returns OpenSSL's name of the cipher suite of a connection. In TLS 1.3 it is the name of the standard. Empty before
/// the end of the handshake.
pub fn cipher_name(connection: &ServerConnection) -> &'static str {
    let Some(negotiated) = connection.negotiated_cipher_suite() else {
        return "";
    };
    match negotiated.suite() {
        CipherSuite::TLS13_AES_128_GCM_SHA256 => "TLS_AES_128_GCM_SHA256",
        CipherSuite::TLS13_AES_256_GCM_SHA384 => "TLS_AES_256_GCM_SHA384",
        CipherSuite::TLS13_CHACHA20_POLY1305_SHA256 => "TLS_CHACHA20_POLY1305_SHA256",
        other => {
            let mut known = KNOWN.iter();
            let found = known.find(|cipher| cipher.suite.suite() == other);
            found.map_or("", |cipher| cipher.name)
        }
    }
}

/// Returns the TLS version of a connection, as nginx names it. Empty before the end of the handshake.
pub fn version_name(connection: &ServerConnection) -> &'static str {
    match connection.protocol_version() {
        Some(ProtocolVersion::TLSv1_3) => "TLSv1.3",
        Some(ProtocolVersion::TLSv1_2) => "TLSv1.2",
        _ => "",
    }
}

/// Words that are valid in OpenSSL's cipher lists but match no supported cipher.
#[rustfmt::skip]
const OTHER_WORDS: [&str; 40] = [
    "COMPLEMENTOFALL",
    "COMPLEMENTOFDEFAULT",
    "MEDIUM",
    "LOW",
    "EXP",
    "EXPORT",
    "eNULL",
    "NULL",
    "aNULL",
    "kRSA",
    "RSA",
    "kDHE",
    "kEDH",
    "kDH",
    "DHE",
    "EDH",
    "DH",
    "ADH",
    "AECDH",
    "aDSS",
    "DSS",
    "PSK",
    "kPSK",
    "aPSK",
    "SRP",
    "kSRP",
    "3DES",
    "DES",
    "RC4",
    "RC2",
    "IDEA",
    "SEED",
    "CAMELLIA",
    "ARIA",
    "MD5",
    "SHA1",
    "SHA",
    "SSLv3",
    "TLSv1",
    "AESCCM",
];

/// Parts, separated by `-`, of the names of OpenSSL ciphers that are not supported.
#[rustfmt::skip]
const NAME_PARTS: [&str; 32] = [
    "DHE",
    "ECDHE",
    "EDH",
    "ECDH",
    "ADH",
    "AECDH",
    "RSA",
    "ECDSA",
    "DSS",
    "PSK",
    "SRP",
    "AES128",
    "AES256",
    "CAMELLIA128",
    "CAMELLIA256",
    "ARIA128",
    "ARIA256",
    "ARIA128-GCM",
    "DES",
    "CBC3",
    "CBC",
    "SEED",
    "IDEA",
    "RC4",
    "MD5",
    "SHA",
    "SHA256",
    "SHA384",
    "GCM",
    "CCM",
    "CCM8",
    "NULL",
];

/// Parses a cipher list in OpenSSL's syntax. As in nginx, the list does not affect TLS 1.3, whose ciphers are all
/// offered.
pub fn read_ciphers(list: &str) -> Result<Read<Vec<CipherSuite>>, SuiteError> {
    let mut chosen: Vec<&'static OpensslCipher> = Vec::new();
    let mut barred: Vec<&'static str> = Vec::new();
    let mut lacking = Vec::new();
    for item in list.split([':', ',', ' ']).filter(|item| !item.is_empty()) {
        if item.starts_with('@') {
            // Ignore sorting (`@STRENGTH`) and security levels (`@SECLEVEL`).
            continue;
        }
        let (sign, words) = match item.as_bytes()[0] {
            sign @ (b'!' | b'-' | b'+') => (sign, &item[1..]),
            _ => (b' ', item),
        };
        let matching = matching(words).ok_or_else(|| SuiteError::Cipher(item.to_owned()))?;
        let is_one = |known: &&OpensslCipher| matching.iter().any(|other| other.name == known.name);
        match sign {
            b'!' => {
                chosen.retain(|known| !is_one(known));
                barred.extend(matching.iter().map(|known| known.name));
            }
            b'-' => chosen.retain(|known| !is_one(known)),
            // `+` moves the ciphers to the end of the list.
            b'+' => chosen.sort_by_key(is_one),
            _ if matching.is_empty() && !words.starts_with("TLS_") => {
                lacking.push(words.to_owned())
            }
            _ => {
                for known in matching {
                    let is_new = chosen.iter().all(|other| other.name != known.name);
                    if is_new && !barred.contains(&known.name) {
                        chosen.push(known);
                    }
                }
            }
        }
    }
    if chosen.is_empty() {
        return Err(SuiteError::NoCipher);
    }
    Ok(Read {
        value: chosen.iter().map(|known| known.suite.suite()).collect(),
        lacking,
    })
}

/// Returns the ciphers that match all of these words, which are joined by `+`. Returns `None` if a word is unknown.
fn matching(words: &str) -> Option<Vec<&'static OpensslCipher>> {
    let mut matching: Vec<&'static OpensslCipher> = KNOWN.iter().collect();
    for word in words.split('+') {
        if !KNOWN.iter().any(|known| known.has(word)) && !is_elsewhere(word) {
            return None;
        }
        matching.retain(|known| known.has(word));
    }
    Some(matching)
}

/// Whether OpenSSL knows the word although it matches no supported cipher.
fn is_elsewhere(word: &str) -> bool {
    let is_name = || word.contains('-') && word.split('-').all(|part| NAME_PARTS.contains(&part));
    OTHER_WORDS.contains(&word) || word.starts_with("TLS_") || is_name()
}

/// Returns all supported TLS 1.2 ciphers, in rustls' order of preference.
pub fn all_ciphers() -> Vec<CipherSuite> {
    let all = rustls::crypto::aws_lc_rs::ALL_CIPHER_SUITES.iter();
    all.map(SupportedCipherSuite::suite)
        .filter(|name| {
            name.as_str()
                .is_some_and(|name| name.starts_with("TLS_ECDHE"))
        })
        .collect()
}

/// Returns the suites of TLS 1.3, then the given suites of TLS 1.2, in their order.
pub(super) fn suites(tls12: &[CipherSuite]) -> Vec<SupportedCipherSuite> {
    let all = rustls::crypto::aws_lc_rs::ALL_CIPHER_SUITES;
    let newer = all.iter().filter(|suite| suite.tls13().is_some());
    let wanted = tls12
        .iter()
        .filter_map(|name| all.iter().find(|suite| suite.suite() == *name));
    newer.chain(wanted).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(list: &str) -> Vec<&'static str> {
        let read = read_ciphers(list).unwrap();
        let name = |suite: &CipherSuite| {
            let known = KNOWN.iter().find(|known| known.suite.suite() == *suite);
            known.unwrap().name
        };
        read.value.iter().map(name).collect()
    }

    #[test]
    fn versions_are_parsed_and_old_ones_reported() {
        let read = read_versions("TLSv1.2 TLSv1.3").unwrap();
        assert_eq!(read.value, Versions::BOTH);
        assert!(read.lacking.is_empty());
        let read = read_versions("TLSv1 TLSv1.1 TLSv1.2").unwrap();
        assert!(read.value.tls12 && !read.value.tls13);
        assert_eq!(read.lacking, ["TLSv1", "TLSv1.1"]);
        assert_eq!(read_versions("TLSv1.1"), Err(SuiteError::NoVersion));
        assert_eq!(
            read_versions("TLS1.3"),
            Err(SuiteError::Version("TLS1.3".into()))
        );
    }

    #[test]
    fn ciphers_are_taken_in_the_order_given() {
        assert_eq!(
            names("ECDHE-RSA-AES128-GCM-SHA256:ECDHE-ECDSA-AES256-GCM-SHA384"),
            [
                "ECDHE-RSA-AES128-GCM-SHA256",
                "ECDHE-ECDSA-AES256-GCM-SHA384"
            ]
        );
    }

    /// The list is from Kong's `intermediate`.
    #[test]
    fn unsupported_ciphers_are_reported() {
        let list = "ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-CHACHA20-POLY1305:DHE-RSA-AES128-GCM-SHA256:\
                    DHE-RSA-AES256-GCM-SHA384:AES128-SHA:TLS_AES_128_GCM_SHA256";
        let read = read_ciphers(list).unwrap();
        assert_eq!(read.value.len(), 2);
        assert_eq!(
            read.lacking,
            [
                "DHE-RSA-AES128-GCM-SHA256",
                "DHE-RSA-AES256-GCM-SHA384",
                "AES128-SHA"
            ]
        );
        assert_eq!(
            read_ciphers("DHE-RSA-AES128-SHA"),
            Err(SuiteError::NoCipher)
        );
    }

    #[test]
    fn groups_are_read_as_openssl_reads_them() {
        assert_eq!(names("HIGH:!aNULL:!MD5").len(), 6);
        assert_eq!(
            names("EECDH+AESGCM:!aRSA"),
            [
                "ECDHE-ECDSA-AES256-GCM-SHA384",
                "ECDHE-ECDSA-AES128-GCM-SHA256"
            ]
        );
        assert_eq!(names("!AES:ALL").len(), 2, "barred for good");
        assert_eq!(names("ALL:-AES:ALL").len(), 6, "removed, not barred");
        assert_eq!(
            names("ALL:+CHACHA20").last(),
            Some(&"ECDHE-RSA-CHACHA20-POLY1305")
        );
    }

    #[test]
    fn unknown_names_are_errors() {
        for wrong in ["ECDHE-RSA-AES128-GCM-SHA257", "STRONG", "EECDH+GOOD", "!"] {
            let error = read_ciphers(&format!("ALL:{wrong}")).unwrap_err();
            assert_eq!(error, SuiteError::Cipher(wrong.into()));
        }
    }

    #[test]
    fn all_ciphers_are_known_by_name() {
        assert_eq!(all_ciphers().len(), KNOWN.len());
        assert_eq!(suites(&all_ciphers()).len(), KNOWN.len() + 3);
    }
}
