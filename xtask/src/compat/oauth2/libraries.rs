//! The libraries of the suite `oauth2` and their cases. A program gets the names of its cases as arguments, so that a
//! case that is listed here cannot be missing there.

use crate::compat::report::Case;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Language {
    /// The program's file in the folder `node`.
    Node(&'static str),
    /// The program's file in the folder `python`.
    Python(&'static str),
    Go,
}

pub(super) struct Library {
    /// The name in the package registry of its language.
    pub(super) name: &'static str,
    pub(super) language: Language,
    cases: &'static [&'static str],
    /// What only some of the libraries have, and this one has not.
    lacks: &'static [&'static str],
}

/// Cases that need a second authorization server, and signed access tokens. Only one way has them.
const SIGNED: &str = "signed access token";
const OTHER_SERVER: &str = "code of another server";

impl Library {
    pub(super) fn cases(&self, way: &str) -> impl Iterator<Item = &'static str> {
        let has_all = way == "signed";
        let cases = self.cases.iter().copied();
        cases.filter(move |case| has_all || ![SIGNED, OTHER_SERVER].contains(case))
    }

    pub(super) fn left_out(&self) -> Vec<Case> {
        let names = self.lacks.join(", ");
        let left_out =
            (!names.is_empty()).then(|| Case::new(names, "the library does not have it"));
        left_out.into_iter().collect()
    }
}

pub(super) const LIBRARIES: [Library; 6] = [
    Library {
        name: "openid-client",
        language: Language::Node("openid-client.mjs"),
        cases: &[
            "metadata",
            "client credentials",
            "client credentials, header",
            "client credentials, encoded header",
            "wrong secret",
            "code with PKCE",
            "code with PKCE, public client",
            "code without PKCE",
            "wrong verifier",
            "wrong scope",
            "state that must be encoded",
            OTHER_SERVER,
            "code twice",
            "password",
            "refresh",
            "refresh with another scope",
            "refresh, public client",
            "refresh token twice",
            "introspection",
            "revocation",
            "revocation, public client",
            SIGNED,
            "wrong access token",
        ],
        lacks: &["implicit"],
    },
    Library {
        name: "simple-oauth2",
        language: Language::Node("simple-oauth2.mjs"),
        cases: &[
            "client credentials",
            "client credentials, header",
            "client credentials, encoded header",
            "wrong secret",
            "code with PKCE",
            "code with PKCE, public client",
            "code without PKCE",
            "wrong verifier",
            "wrong scope",
            "state and redirect URI that must be encoded",
            "code twice",
            "password",
            "refresh",
            "refresh, public client",
            "refresh token twice",
            "revocation",
            "revocation, public client",
        ],
        lacks: &["implicit", "introspection", "metadata", SIGNED],
    },
    Library {
        name: "Authlib",
        language: Language::Python("authlib_client.py"),
        cases: &[
            "metadata",
            "client credentials",
            "client credentials, header",
            "client credentials, encoded header",
            "wrong secret",
            "code with PKCE",
            "code with PKCE, public client",
            "code without PKCE",
            "wrong verifier",
            "state and redirect URI that must be encoded",
            "code twice",
            "implicit",
            "password",
            "refresh",
            "refresh, public client",
            "refresh of an expired token",
            "refresh token twice",
            "introspection",
            "revocation",
            "revocation, public client",
            SIGNED,
        ],
        lacks: &[],
    },
    Library {
        name: "requests-oauthlib",
        language: Language::Python("requests_oauthlib_client.py"),
        cases: &[
            "client credentials",
            "client credentials, header",
            "client credentials, encoded header",
            "wrong secret",
            "code with PKCE",
            "code with PKCE, header",
            "code with PKCE, public client",
            "code with PKCE, public client, header",
            "code without PKCE",
            "wrong verifier",
            "wrong scope",
            "state and redirect URI that must be encoded",
            "code twice",
            "implicit",
            "password",
            "refresh",
            "refresh, public client",
            "refresh of an expired token",
            "refresh token twice",
        ],
        lacks: &["introspection", "revocation", "metadata", SIGNED],
    },
    Library {
        name: "oauthlib",
        language: Language::Python("oauthlib_client.py"),
        cases: &[
            "client credentials",
            "wrong secret",
            "code with PKCE",
            "code with PKCE, public client",
            "code without PKCE",
            "wrong verifier",
            "wrong scope",
            "state and redirect URI that must be encoded",
            "code twice",
            "implicit",
            "password",
            "refresh",
            "refresh, public client",
            "refresh token twice",
            "revocation",
            "revocation, public client",
        ],
        lacks: &["introspection", "metadata", SIGNED],
    },
    Library {
        name: "golang.org/x/oauth2",
        language: Language::Go,
        cases: &[
            "client credentials",
            "client credentials, header",
            "client credentials, encoded header",
            "client credentials, detected",
            "wrong secret",
            "code with PKCE",
            "code with PKCE, public client",
            "code without PKCE",
            "wrong verifier",
            "wrong scope",
            "state and redirect URI that must be encoded",
            "code twice",
            "password",
            "refresh",
            "refresh, public client",
            "refresh of an expired token",
            "refresh token twice",
        ],
        lacks: &[
            "implicit",
            "introspection",
            "revocation",
            "metadata",
            SIGNED,
        ],
    },
];
