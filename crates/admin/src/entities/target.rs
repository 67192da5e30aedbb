//! Normal form of targets: `host:port`, with port 8000 by default, IPv4 without leading zeros and IPv6 expanded and in
//! brackets. Source: kong/db/schema/entities/targets.lua, kong/tools/ip.lua.

use model::address::Address;
use model::{Error, Object, Value};

pub(crate) fn normalise(target: &mut Object) {
    if let Some(normal) = target.str("target").map(normal_form) {
        target.insert("target", Value::from(normal));
    }
}

/// Refuses a new target that is not a valid address. The schema would refuse it too, but with another text. Source:
/// kong/db/dao/targets.lua.
pub(crate) fn check(target: &Object) -> Result<(), Error> {
    if target
        .str("target")
        .is_some_and(|text| Address::parse(text).is_err())
    {
        let problem = "Invalid target; not a valid hostname or ip address";
        let fields = Object::from_iter([("target", Value::from(problem))]);
        return Err(Error::schema_violation(fields));
    }
    Ok(())
}

/// Returns the normal form of a valid target; an invalid one is returned unchanged.
pub(crate) fn normal_form(text: &str) -> String {
    Address::parse(text).map_or_else(|_| text.to_owned(), |address| address.as_target())
}

/// Adds the port to a target that a declarative configuration specified without one.
pub(crate) fn with_port(text: &str) -> String {
    match Address::parse(text) {
        Ok(address) if address.port.is_none() => address.as_target(),
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_take_their_normal_form() {
        for (given, normal) in [
            ("a.test", "a.test:8000"),
            ("a.test:80", "a.test:80"),
            ("001.2.3.040:80", "1.2.3.40:80"),
            ("0.0.0.0", "0.0.0.0:8000"),
            ("[::1]:80", "[0000:0000:0000:0000:0000:0000:0000:0001]:80"),
            ("::1", "[0000:0000:0000:0000:0000:0000:0000:0001]:8000"),
        ] {
            assert_eq!(normal_form(given), normal, "{given}");
        }
    }

    #[test]
    fn a_port_is_added_where_there_is_none() {
        assert_eq!(with_port("a.test"), "a.test:8000");
        assert_eq!(with_port("a.test:1"), "a.test:1");
        assert_eq!(with_port("[::1]:1"), "[::1]:1");
    }
}
