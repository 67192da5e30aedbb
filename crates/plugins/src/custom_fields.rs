//! Fields of a log record that the user's Lua code computes (`custom_fields_by_lua` of the log plugins).

use lua::{FieldError, FieldTexts, Fields, Forbidden, Globals, Target};
use model::Value;
use model::schema::ValidatorFn;
use plugin::{BuildCx, EndedStreamCx, LogCx, LogField, PerWorker, RequestState};
use std::error::Error;

/// The fields of an instance.
pub(crate) struct CustomFields {
    /// Name of the log plugin.
    plugin: &'static str,
    /// `None` if there are none. The error is that of a setting that forbids the code.
    texts: Option<Result<FieldTexts, Forbidden>>,
    part: PerWorker<Fields>,
}

impl CustomFields {
    pub(crate) fn new<'a, T: AsRef<str> + 'a>(
        plugin: &'static str,
        fields: impl Iterator<Item = (&'a T, &'a T)>,
        cx: &BuildCx<'_>,
    ) -> Self {
        let fields: Vec<(String, String)> = fields
            .map(|(key, text)| (key.as_ref().to_owned(), text.as_ref().to_owned()))
            .collect();
        let texts = (!fields.is_empty()).then(|| {
            Ok(FieldTexts {
                fields: fields.into(),
                globals: Globals::new(cx.lua)?,
            })
        });
        Self {
            plugin,
            texts,
            part: cx.per_worker(),
        }
    }

    /// Computes the fields of a request. Without an error, its log record has them.
    pub(crate) fn set(&self, cx: &mut LogCx<'_, '_>) -> Result<(), Box<dyn Error>> {
        match &self.texts {
            None => Ok(()),
            Some(texts) => self.compute(texts, Target::log(cx)),
        }
    }

    /// Computes the fields of a session. Unlike those of a request, later plugins do not see them.
    pub(crate) fn of_stream(
        &self,
        cx: &EndedStreamCx<'_>,
    ) -> Result<Vec<LogField>, Box<dyn Error>> {
        let Some(texts) = &self.texts else {
            return Ok(Vec::new());
        };
        let mut state = RequestState::default();
        self.compute(texts, Target::ended_stream(cx, &mut state))?;
        Ok(state.log_fields)
    }

    fn compute(
        &self,
        texts: &Result<FieldTexts, Forbidden>,
        target: Target<'_>,
    ) -> Result<(), Box<dyn Error>> {
        let texts = texts.as_ref().map_err(|error| *error)?;
        let fields = self.part.get(|| Fields::new(texts.clone()));
        let set: Result<(), FieldError> = fields.set(&target.of(self.plugin));
        Ok(set?)
    }
}

/// Validates the text of a field. Source: kong/db/schema/typedefs.lua, `lua_code`.
pub(crate) const VALIDATOR: (&str, ValidatorFn) = ("lua_field", |text, _| check(text));

fn check(text: &Value) -> Result<(), Value> {
    let Some(text) = text.as_str() else {
        return Ok(());
    };
    lua::check_syntax(text).map_err(|error| format!("Error parsing function: {error}").into())
}
