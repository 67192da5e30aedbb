//! Decodes many stored plugins. In a large configuration most plugins have the same configuration as another one. Equal
//! configurations are decoded once and shared, which takes a third of the time and hardly any memory.

use crate::codec::{self, DecodeError};
use crate::entities::Plugin;
use crate::schema;
use crate::value::Value;
use std::collections::HashMap;
use std::sync::Arc;

/// Decodes plugins and remembers the decoded configurations by their bytes.
#[derive(Debug, Default)]
pub struct PluginReader<'b> {
    configs: HashMap<&'b [u8], Arc<Value>>,
    /// Buffer for a plugin without its configuration.
    rest: Vec<u8>,
}

impl<'b> PluginReader<'b> {
    /// Reads a plugin, with the same result as [`codec::decode`].
    pub fn read(&mut self, stored: &'b [u8]) -> Result<Plugin, DecodeError> {
        let Some(config) = self.take_config(stored) else {
            return codec::decode(stored);
        };
        let mut plugin: Plugin = codec::decode(&self.rest)?;
        plugin.config = match self.configs.get(config) {
            Some(known) => Arc::clone(known),
            None => {
                let read: Arc<Value> = Arc::new(codec::decode(config)?);
                self.configs.insert(config, Arc::clone(&read));
                read
            }
        };
        Ok(plugin)
    }

    /// Returns the bytes of the configuration and copies the other fields to `rest`. Returns `None` if there is no
    /// configuration or the plugin is malformed. Then [`codec::decode`] decodes the whole plugin or reports the error.
    fn take_config(&mut self, stored: &'b [u8]) -> Option<&'b [u8]> {
        let (fields, content) = match *stored.first()? {
            marker @ 0x80..=0x8f => (u16::from(marker & 0x0f), 1),
            0xde => (u16::from_be_bytes([*stored.get(1)?, *stored.get(2)?]), 3),
            _ => return None,
        };
        let config = schema::stored_field(stored, "config").ok()??;
        self.rest.clear();
        // The marker of a MessagePack map with a length of 16 bits.
        self.rest.push(0xde);
        self.rest.extend((fields - 1).to_be_bytes());
        self.rest
            .extend_from_slice(&stored[content..config.place.start]);
        self.rest.extend_from_slice(&stored[config.place.end..]);
        Some(config.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::Object;
    use serde_json::json;

    fn stored(id: u128, extra: serde_json::Value) -> Vec<u8> {
        let mut plugin = json!({
            "id": uuid::Uuid::from_u128(id), "name": "key-auth", "enabled": true, "protocols": ["http"],
        });
        for (name, value) in extra.as_object().expect("an object") {
            plugin[name] = value.clone();
        }
        let object: Object = serde_json::from_value(plugin).expect("an object");
        codec::encode(&object)
    }

    #[test]
    fn equal_configurations_are_one_value() {
        let config = |key: &str| json!({"config": {"key_names": [key], "nested": {"a": null}}});
        let plugins = [
            stored(1, config("a")),
            stored(2, config("b")),
            stored(3, config("a")),
            stored(4, json!({})),
            stored(
                5,
                json!({"tags": ["t"], "config": {}, "instance_name": "n"}),
            ),
        ];
        let mut reader = PluginReader::default();
        let read = plugins.each_ref().map(|bytes| {
            let shared = reader.read(bytes).expect("it decodes");
            let alone: Plugin = codec::decode(bytes).expect("it decodes");
            assert_eq!(format!("{shared:?}"), format!("{alone:?}"));
            shared
        });
        let same = |one: usize, two: usize| Arc::ptr_eq(&read[one].config, &read[two].config);
        assert!(same(0, 2));
        assert!(!same(0, 1));
    }

    #[test]
    fn damaged_plugins_are_an_error() {
        let whole = stored(1, json!({"config": {"a": [1, 2]}}));
        for length in 0..whole.len() {
            assert!(PluginReader::default().read(&whole[..length]).is_err());
        }
    }
}
