//! acl: admits or refuses clients by their groups. They are the groups of the consumer, or those that another plugin has
//! found ("authenticated groups"). Sources of the behaviour: kong/plugins/acl/handler.lua, groups.lua.

mod config;
mod membership;
pub(crate) mod source;

use compact_str::CompactString;
use config::Config;
use lua::{Group, Groups, Target};
use membership::Membership;
use plugin::{
    BuildCx, BuildError, HeaderValue, PerWorker, Phases, Plugin, PluginDef, PluginError, RequestCx,
    Response, Scopes, Step,
};
use smallvec::SmallVec;
use std::collections::HashSet;
use std::sync::Arc;

pub(crate) fn def() -> PluginDef {
    PluginDef::bundled::<Acl>(NAME, 950, Phases::ACCESS, Scopes::NO_CONSUMER)
}

const NAME: &str = "acl";

struct Acl {
    config: Config,
    mode: Mode,
    /// The groups of the list that is not empty.
    listed: Listed,
    /// Reads the groups that Lua code has set.
    lua_groups: PerWorker<Groups>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Allow,
    Deny,
}

/// The groups of a client, by their origin.
enum ClientGroups {
    /// Groups that another plugin has found.
    Authenticated(Vec<Group>),
    /// Groups of the consumer.
    Consumer(Arc<Vec<Membership>>),
}

impl Plugin for Acl {
    type Config = Config;
    type Own = ();

    fn build(config: Config, cx: &BuildCx<'_>) -> Result<Self, BuildError> {
        let (mode, listed) = match config.deny.as_deref() {
            Some(denied @ [_, ..]) => (Mode::Deny, denied),
            _ => (Mode::Allow, config.allow.as_deref().unwrap_or_default()),
        };
        let listed = Listed::new(listed);
        Ok(Self {
            config,
            mode,
            listed,
            lua_groups: cx.per_worker(),
        })
    }

    fn access<'a>(
        &'a self,
        mut cx: RequestCx<'a, '_>,
        (): &'a mut (),
    ) -> Result<Step<'a>, PluginError> {
        let groups = match self.groups(&mut cx)? {
            Some(groups) if self.admits(&groups) => groups,
            // A client without a credential might get access with one.
            None if cx.state.credential.is_none() => {
                return Ok(Step::Respond(Response::error(401, "Unauthorized")));
            }
            _ => {
                let refusal = Response::error(403, "You cannot consume this service");
                return Ok(Step::Respond(refusal));
            }
        };
        if !self.config.hide_groups_header {
            let headers = &mut cx.request.upstream.headers;
            match &groups {
                ClientGroups::Consumer(_) => headers.set("X-Consumer-Groups", groups.joined()),
                ClientGroups::Authenticated(_) if self.mode == Mode::Allow => {
                    headers.set("X-Authenticated-Groups", groups.joined());
                }
                // Kong sets no header in this case.
                ClientGroups::Authenticated(_) => {}
            }
        }
        Ok(Step::Continue)
    }

    fn needs(&self) -> Option<String> {
        let (lists, relation) = match self.mode {
            Mode::Allow => (&self.config.allow, "one of the groups"),
            Mode::Deny => (&self.config.deny, "none of the groups"),
        };
        let names = lists.iter().flatten().map(|name| format!("`{name}`"));
        let names: Vec<String> = names.collect();
        Some(format!(
            "a client with {relation} {}, else 403; 401 if it is not known",
            names.join(", ")
        ))
    }
}

/// Names of groups. Most lists are short, and to compare a few names costs less than to hash one.
enum Listed {
    Few(Box<[CompactString]>),
    Many(HashSet<Box<[u8]>>),
}

impl Listed {
    const FEW: usize = 8;

    fn new(names: &[CompactString]) -> Self {
        match names.len() <= Self::FEW {
            true => Self::Few(names.into()),
            false => Self::Many(names.iter().map(|name| name.as_bytes().into()).collect()),
        }
    }

    fn contains(&self, name: &[u8]) -> bool {
        match self {
            Self::Few(names) => names.iter().any(|one| one.as_bytes() == name),
            Self::Many(names) => names.contains(name),
        }
    }
}

impl Acl {
    /// Returns the groups that decide. Returns `None` if the client is refused whatever the list is.
    fn groups(&self, cx: &mut RequestCx<'_, '_>) -> Result<Option<ClientGroups>, PluginError> {
        let consumer = cx.state.consumer.as_ref().map(|consumer| consumer.id.0);
        // Lua code may tell a credential without a consumer, but with its id.
        let consumer = consumer.or_else(|| cx.state.told_credential()?.consumer);
        let is_anonymous = cx.state.credential.is_none();
        if consumer.is_none() || is_anonymous || self.config.always_use_authenticated_groups {
            let groups = self.authenticated_groups(cx)?;
            if groups.is_some() {
                return Ok(groups.map(ClientGroups::Authenticated));
            }
        }
        let Some(consumer) = consumer else {
            return Ok(None);
        };
        let groups = cx.node.entities.children("consumer", consumer)?;
        let decides = !groups.is_empty() || self.mode == Mode::Deny;
        Ok(decides.then_some(ClientGroups::Consumer(groups)))
    }

    /// Returns the groups that another plugin has found: those that Lua code has set, or else those of a plugin of the
    /// program. An empty table of Lua code is a list too.
    fn authenticated_groups(
        &self,
        cx: &mut RequestCx<'_, '_>,
    ) -> Result<Option<Vec<Group>>, PluginError> {
        let target = Target::request(lua::Phase::Access, cx).of(NAME);
        let from_lua = self.lua_groups.get(Groups::default).read(&target);
        if let Some(groups) = from_lua.map_err(PluginError::new)? {
            return Ok(Some(groups));
        }
        let found = cx.state.groups.iter().map(|group| Group {
            text: group.as_bytes().to_vec(),
            is_number: false,
        });
        let found: Vec<Group> = found.collect();
        Ok((!found.is_empty()).then_some(found))
    }

    fn admits(&self, groups: &ClientGroups) -> bool {
        let is_listed = |name: &[u8]| self.listed.contains(name);
        let is_in_one = match groups {
            ClientGroups::Consumer(groups) => {
                groups.iter().any(|one| is_listed(one.group.as_bytes()))
            }
            ClientGroups::Authenticated(groups) => groups
                .iter()
                .any(|group| !group.is_number && is_listed(&group.text)),
        };
        is_in_one == (self.mode == Mode::Allow)
    }
}

impl ClientGroups {
    /// Returns the value of the header for the upstream.
    fn joined(&self) -> HeaderValue {
        let names: SmallVec<[&[u8]; 8]> = match self {
            Self::Consumer(groups) => groups.iter().map(|one| one.group.as_bytes()).collect(),
            Self::Authenticated(groups) => groups.iter().map(|group| &*group.text).collect(),
        };
        match *names {
            [only] => HeaderValue::from_untrusted(only),
            _ => HeaderValue::from_untrusted(&names.join(&b", "[..])),
        }
    }
}

#[cfg(test)]
mod tests;
