//! Reads those members of a JSON object that the plugin uses. All others are only checked to be JSON.

use compact_str::CompactString;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::fmt;

/// A JSON text.
#[derive(Debug, PartialEq)]
pub(super) enum Json {
    Object(Members),
    Other,
}

/// The members of a header or of claims. If a name occurs several times, the last value counts, as in Kong's lua-cjson.
/// RFC 7515 section 4 and RFC 7519 section 4 allow that.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Members {
    pub(super) alg: Member,
    /// Whether there is a member `crit`, whatever its value is.
    pub(super) has_crit: bool,
    pub(super) exp: Member,
    pub(super) nbf: Member,
    /// The member with the key of the credential.
    pub(super) key: Member,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub enum Member {
    #[default]
    Absent,
    False,
    Number(f64),
    Text(CompactString),
    /// `null`, `true`, an array or an object.
    Other,
}

impl Member {
    /// Whether Lua takes the value for false.
    pub(super) fn is_falsy(&self) -> bool {
        matches!(self, Self::Absent | Self::False)
    }
}

impl Members {
    /// Returns `None` if the text is not JSON.
    pub(super) fn read(text: &[u8], key_claim: &str) -> Option<Json> {
        let mut deserializer = serde_json::Deserializer::from_slice(text);
        let json = deserializer
            .deserialize_any(JsonVisitor { key_claim })
            .ok()?;
        deserializer.end().ok()?;
        Some(json)
    }
}

struct JsonVisitor<'k> {
    key_claim: &'k str,
}

impl<'de> Visitor<'de> for JsonVisitor<'_> {
    type Value = Json;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Json, A::Error> {
        let mut members = Members::default();
        let key_claim = self.key_claim;
        while let Some(name) = map.next_key_seed(NameSeed { key_claim })? {
            if name.is_unused() {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            let value = map.next_value_seed(MemberSeed)?;
            members.has_crit |= name.is_crit;
            // One member may have two roles: the key may be in any claim.
            let roles = [
                (name.is_alg, &mut members.alg),
                (name.is_exp, &mut members.exp),
                (name.is_nbf, &mut members.nbf),
                (name.is_key, &mut members.key),
            ];
            for (_, role) in roles.into_iter().filter(|(is_this, _)| *is_this) {
                *role = value.clone();
            }
        }
        Ok(Json::Object(members))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Json, A::Error> {
        IgnoredAny.visit_seq(seq).map(|_| Json::Other)
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<Json, E> {
        Ok(Json::Other)
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<Json, E> {
        Ok(Json::Other)
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<Json, E> {
        Ok(Json::Other)
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<Json, E> {
        Ok(Json::Other)
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<Json, E> {
        Ok(Json::Other)
    }

    fn visit_unit<E: Error>(self) -> Result<Json, E> {
        Ok(Json::Other)
    }
}

/// The roles of the member with a name.
#[derive(Clone, Copy)]
struct Name {
    is_alg: bool,
    is_crit: bool,
    is_exp: bool,
    is_nbf: bool,
    is_key: bool,
}

impl Name {
    fn is_unused(self) -> bool {
        !(self.is_alg || self.is_crit || self.is_exp || self.is_nbf || self.is_key)
    }
}

struct NameSeed<'k> {
    key_claim: &'k str,
}

impl<'de> DeserializeSeed<'de> for NameSeed<'_> {
    type Value = Name;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Name, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for NameSeed<'_> {
    type Value = Name;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a name")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Name, E> {
        Ok(Name {
            is_alg: name == "alg",
            is_crit: name == "crit",
            is_exp: name == "exp",
            is_nbf: name == "nbf",
            is_key: name == self.key_claim,
        })
    }
}

struct MemberSeed;

impl<'de> DeserializeSeed<'de> for MemberSeed {
    type Value = Member;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Member, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for MemberSeed {
    type Value = Member;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("JSON")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Member, E> {
        Ok(Member::Text(text.into()))
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Member, E> {
        Ok(match value {
            true => Member::Other,
            false => Member::False,
        })
    }

    // Lua has one type of numbers, so large integers lose digits there too.
    fn visit_u64<E: Error>(self, number: u64) -> Result<Member, E> {
        Ok(Member::Number(number as f64))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Member, E> {
        Ok(Member::Number(number as f64))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Member, E> {
        Ok(Member::Number(number))
    }

    fn visit_unit<E: Error>(self) -> Result<Member, E> {
        Ok(Member::Other)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Member, A::Error> {
        IgnoredAny.visit_map(map).map(|_| Member::Other)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Member, A::Error> {
        IgnoredAny.visit_seq(seq).map(|_| Member::Other)
    }
}
