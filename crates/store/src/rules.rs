//! Which fields of an entity are indexed, and what happens to those that refer to one that is removed: taken from the
//! schemas once, in the form that a commit walks.

use model::EntityKind;
use std::sync::LazyLock;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnDelete {
    Restrict,
    Cascade,
}

/// A field that refers to an entity of another kind.
#[derive(Debug, Clone)]
pub(crate) struct Foreign {
    pub(crate) field: &'static str,
    pub(crate) slot: usize,
    pub(crate) parent: EntityKind,
}

/// A field of another kind that refers to this one.
#[derive(Debug, Clone)]
pub(crate) struct Reference {
    pub(crate) kind: EntityKind,
    pub(crate) field: &'static str,
    pub(crate) on_delete: OnDelete,
}

#[derive(Debug, Default)]
pub(crate) struct Rules {
    /// The fields to read of an entity; a slot is an index into it.
    pub(crate) fields: Vec<&'static str>,
    /// Slots of unique fields.
    pub(crate) unique: Vec<usize>,
    /// Slots of the composite cache key; empty when the kind has none, or one of a single field, which is unique itself.
    pub(crate) cache_key: Vec<usize>,
    pub(crate) foreign: Vec<Foreign>,
    pub(crate) tags: Option<usize>,
    pub(crate) referenced_by: Vec<Reference>,
}

/// The number of a kind is less than this.
const KINDS: usize = 64;

pub(crate) fn of(kind: EntityKind) -> &'static Rules {
    &TABLE[kind as usize]
}

static TABLE: LazyLock<Vec<Rules>> = LazyLock::new(|| {
    let mut table: Vec<Rules> = (0..KINDS).map(|_| Rules::default()).collect();
    for kind in EntityKind::ALL {
        let description = describe(kind);
        for (field, parent, on_delete) in &description.foreign {
            table[*parent as usize].referenced_by.push(Reference {
                kind,
                field,
                on_delete: *on_delete,
            });
        }
        let referenced_by = std::mem::take(&mut table[kind as usize].referenced_by);
        table[kind as usize] = Rules {
            referenced_by,
            ..compile(&description)
        };
    }
    table
});

struct Description {
    unique: Vec<&'static str>,
    cache_key: Vec<&'static str>,
    foreign: Vec<(&'static str, EntityKind, OnDelete)>,
}

fn compile(description: &Description) -> Rules {
    let mut rules = Rules::default();
    rules.unique = description
        .unique
        .iter()
        .map(|field| slot(&mut rules.fields, field))
        .collect();
    if description.cache_key.len() > 1 {
        rules.cache_key = description
            .cache_key
            .iter()
            .map(|field| slot(&mut rules.fields, field))
            .collect();
    }
    for &(field, parent, _) in &description.foreign {
        let slot = slot(&mut rules.fields, field);
        rules.foreign.push(Foreign {
            field,
            slot,
            parent,
        });
    }
    rules.tags = Some(slot(&mut rules.fields, "tags"));
    rules
}

fn slot(fields: &mut Vec<&'static str>, field: &'static str) -> usize {
    fields
        .iter()
        .position(|known| *known == field)
        .unwrap_or_else(|| {
            fields.push(field);
            fields.len() - 1
        })
}

fn describe(kind: EntityKind) -> Description {
    use EntityKind as K;
    use OnDelete::{Cascade, Restrict};
    let (unique, cache_key, foreign): (&[&str], &[&str], &[(&str, K, OnDelete)]) = match kind {
        K::Workspaces | K::Upstreams | K::KeySets | K::Snis | K::Services | K::Routes => {
            let foreign: &[(&'static str, K, OnDelete)] = match kind {
                K::Routes => &[("service", K::Services, Restrict)],
                K::Services | K::Upstreams => &[("client_certificate", K::Certificates, Restrict)],
                K::Snis => &[("certificate", K::Certificates, Restrict)],
                _ => &[],
            };
            (&["name"], &[], foreign)
        }
        K::Keys => (&["name"], &["kid", "set"], &[("set", K::KeySets, Cascade)]),
        K::Consumers => (&["username", "custom_id"], &[], &[]),
        K::CaCertificates => (&["cert_digest"], &[], &[]),
        K::Targets => (
            &[],
            &["upstream", "target"],
            &[("upstream", K::Upstreams, Cascade)],
        ),
        K::Plugins => (
            &["instance_name"],
            &["name", "route", "service", "consumer"],
            &[
                ("route", K::Routes, Cascade),
                ("service", K::Services, Cascade),
                ("consumer", K::Consumers, Cascade),
            ],
        ),
        K::FilterChains => (
            &["name"],
            &["route", "service"],
            &[
                ("route", K::Routes, Cascade),
                ("service", K::Services, Cascade),
            ],
        ),
        K::Vaults => (&["prefix"], &[], &[]),
        K::Parameters | K::AcmeStorage => (&["key"], &[], &[]),
        K::KeyauthCredentials | K::JwtSecrets => {
            (&["key"], &[], &[("consumer", K::Consumers, Cascade)])
        }
        K::BasicauthCredentials | K::HmacauthCredentials => {
            (&["username"], &[], &[("consumer", K::Consumers, Cascade)])
        }
        K::Acls => (
            &[],
            &["consumer", "group"],
            &[("consumer", K::Consumers, Cascade)],
        ),
        K::Oauth2Credentials => (&["client_id"], &[], &[("consumer", K::Consumers, Cascade)]),
        K::Oauth2Tokens => (
            &["access_token", "refresh_token"],
            &[],
            &[
                ("service", K::Services, Cascade),
                ("credential", K::Oauth2Credentials, Cascade),
            ],
        ),
        K::Oauth2AuthorizationCodes => (
            &["code"],
            &[],
            &[
                ("service", K::Services, Cascade),
                ("credential", K::Oauth2Credentials, Cascade),
                ("plugin", K::Plugins, Cascade),
            ],
        ),
        K::Sessions => (&["session_id"], &[], &[]),
        K::Certificates | K::Tags | K::ClusteringDataPlanes | K::RatelimitingMetrics => {
            (&[], &[], &[])
        }
    };
    Description {
        unique: unique.to_vec(),
        cache_key: cache_key.to_vec(),
        foreign: foreign.to_vec(),
    }
}
