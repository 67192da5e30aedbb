//! Fields of log records that the user's code computes (`custom_fields_by_lua`). Source: the handlers of Kong's log plugins.

use crate::abi::Code;
use crate::globals::Globals;
use crate::handles::Function;
use crate::target::Target;
use crate::vm::{self, Ran};
use std::cell::RefCell;
use std::sync::Arc;

/// The texts of the fields with their keys. All workers share them.
#[derive(Debug, Clone)]
pub struct FieldTexts {
    pub fields: Arc<[(String, String)]>,
    pub globals: Globals,
}

/// The fields on a worker. They are compiled when they first run.
pub struct Fields {
    texts: FieldTexts,
    functions: RefCell<Vec<Option<Function>>>,
}

/// A field that cannot be set. Kong then writes no log record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the field {key} of the log record: {error}")]
pub struct FieldError {
    pub key: String,
    pub error: String,
}

impl Fields {
    pub fn new(texts: FieldTexts) -> Self {
        Self {
            texts,
            functions: RefCell::default(),
        }
    }

    /// Computes the fields and sets them in the state of the request (`kong.log.set_serialize_value`).
    pub fn set(&self, target: &Target<'_>) -> Result<(), FieldError> {
        let mut functions = self.functions.borrow_mut();
        let FieldTexts { fields, globals } = &self.texts;
        functions.resize_with(fields.len(), || None);
        for ((key, text), function) in fields.iter().zip(functions.iter_mut()) {
            let set = vm::with(|vm| {
                let function = match function {
                    Some(known) if vm.has(known) => known,
                    _ => function.insert(vm.compile(Code::Field, text, globals, target)?),
                };
                vm.cx.offer(key.as_bytes(), b"");
                match vm.start(function, target) {
                    Ran::Done(_) => Ok(()),
                    Ran::Failed(error) => Err(error),
                    _ => Err("it can neither wait nor end the request".to_owned()),
                }
            });
            set.map_err(|error| FieldError {
                key: key.clone(),
                error,
            })?;
        }
        Ok(())
    }
}
