//! Notices about configured plugins that do not do what is configured, with the names of the entities that they are
//! configured for.

use crate::check;
use model::EntityKind;
use model::codec;
use model::entities::Plugin;
use plugin::notice;
use serde::Deserialize;
use store::{StoreError, View};
use uuid::Uuid;

/// Returns the notices about these plugins.
pub(crate) fn of<'p>(
    view: Option<&View<'_>>,
    plugins: impl IntoIterator<Item = &'p Plugin>,
) -> Vec<String> {
    let name = |kind: EntityKind, id: Uuid| {
        let entity = view?.get(kind, id).ok()??;
        check::name_of(kind, entity).ok()?
    };
    let notices = notice::of(plugins::bundled(), plugins, name);
    notices.iter().map(ToString::to_string).collect()
}

/// Returns the notices about all plugins of a configuration.
pub(crate) fn of_all(view: &View<'_>) -> Result<Vec<String>, StoreError> {
    /// Only the name of a plugin. It is much cheaper to decode, and most plugins need no more.
    #[derive(Deserialize)]
    struct Named {
        name: String,
    }
    let concerned: Vec<&str> = (plugins::bundled().iter())
        .filter(|def| notice::is_possible(def))
        .map(|def| &*def.name)
        .collect();
    let mut found = Vec::new();
    for entry in view.iter(EntityKind::Plugins)? {
        let (_, entity) = entry?;
        let named = codec::decode::<Named>(entity);
        if named.is_ok_and(|named| concerned.contains(&named.name.as_str())) {
            found.extend(codec::decode::<Plugin>(entity).ok());
        }
    }
    Ok(of(Some(view), &found))
}
