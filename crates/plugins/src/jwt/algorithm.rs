//! The algorithms of signatures, by their names in tokens and credentials (RFC 7518 section 3.1, RFC 8037).

use serde::Deserialize;
use std::fmt;

/// Declares the algorithms with their names.
macro_rules! algorithms {
    ($($value:ident = $name:literal,)*) => {
        /// An algorithm of signatures. `none` is not one.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
        pub enum Algorithm {
            $(#[serde(rename = $name)] $value,)*
        }

        impl Algorithm {
            pub const ALL: &'static [Self] = &[$(Self::$value,)*];

            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$value => $name,)*
                }
            }
        }
    };
}

algorithms! {
    Hs256 = "HS256",
    Hs384 = "HS384",
    Hs512 = "HS512",
    Rs256 = "RS256",
    Rs384 = "RS384",
    Rs512 = "RS512",
    Es256 = "ES256",
    Es384 = "ES384",
    Es512 = "ES512",
    Ps256 = "PS256",
    Ps384 = "PS384",
    Ps512 = "PS512",
    EdDsa = "EdDSA",
}

impl Algorithm {
    /// Returns the algorithm with this name. Names are case-sensitive.
    pub fn from_name(name: &str) -> Option<Self> {
        let mut all = Self::ALL.iter().copied();
        all.find(|algorithm| algorithm.name() == name)
    }

    /// Whether the key that verifies signatures can also make them.
    pub fn is_symmetric(self) -> bool {
        matches!(self, Self::Hs256 | Self::Hs384 | Self::Hs512)
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}
