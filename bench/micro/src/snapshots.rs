//! From entities to what workers read.

use crate::fixtures::{build_settings, config, nowhere, snapshot};
use crate::operation::Operation;
use model::EntityKind;
use model::entities::Config;
use proxy::snapshot::{Changed, Snapshot};

const ROUTES: usize = 10_000;

pub(crate) fn operations() -> Vec<Operation> {
    vec![
        full_build(),
        put_route(),
        // As when one of them is deleted.
        update("snapshot/update-routes/10000", EntityKind::Routes),
        update("snapshot/update-plugin/10000", EntityKind::Plugins),
        update("snapshot/update-service/10000", EntityKind::Services),
        Operation::consume("snapshot/drop/10000", 1, || {
            (|| snapshot(config(ROUTES, nowhere())), drop::<Snapshot>)
        }),
    ]
}

/// What a start does with 10,000 routes and 20,000 plugins.
fn full_build() -> Operation {
    Operation::consume("snapshot/build/10000", 1, || {
        (|| config(ROUTES, nowhere()), snapshot)
    })
}

/// What a change of one route does, and a new one.
fn put_route() -> Operation {
    Operation::consume("snapshot/put-route/10000", 2, || {
        let settings = build_settings();
        let current = snapshot(config(ROUTES, nowhere()));
        let changed = one_changed().routes.swap_remove(ROUTES / 2);
        let run = move |()| current.put_routes(std::slice::from_ref(&changed), 2, &settings);
        (|| (), run)
    })
}

/// What a change of entities of this kind does.
fn update(name: &str, kind: EntityKind) -> Operation {
    Operation::consume(name, 1, move || {
        let settings = build_settings();
        let current = snapshot(config(ROUTES, nowhere()));
        let mut changed = Changed::default();
        changed.put(kind);
        let next = move || needed(one_changed(), changed);
        let run = move |config: Config| {
            let next = current.update(config, 2, changed, &settings);
            next.expect("the configuration can be served")
        };
        (next, run)
    })
}

fn one_changed() -> Config {
    let mut config = config(ROUTES, nowhere());
    config.routes[ROUTES / 2].https_redirect_status_code = 301;
    config.plugins[ROUTES].enabled = false;
    config.services[0].retries = 3;
    config
}

/// What of a configuration is read from the store after such a change.
fn needed(config: Config, changed: Changed) -> Config {
    let mut needed = Config::default();
    if changed.needs(EntityKind::Services) {
        needed.services = config.services;
    }
    if changed.needs(EntityKind::Routes) {
        needed.routes = config.routes;
    }
    if changed.needs(EntityKind::Plugins) {
        needed.plugins = config.plugins;
    }
    needed
}
