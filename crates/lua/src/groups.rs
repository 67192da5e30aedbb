//! The groups of the client that Lua code has set for the plugin acl: `kong.ctx.shared.authenticated_groups` or
//! `ngx.ctx.authenticated_groups`. Source: kong/plugins/acl/groups.lua get_authenticated_groups().

use crate::abi::Code;
use crate::globals::Globals;
use crate::handles::{Context, Function};
use crate::target::Target;
use crate::vm::{self, Ran, Vm};
use std::cell::RefCell;
use std::rc::Rc;

/// Reads the groups on a worker.
#[derive(Default)]
pub struct Groups {
    function: RefCell<Option<Rc<Function>>>,
}

/// An element of the list of groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// The text, or the number as Lua writes it.
    pub text: Vec<u8>,
    /// Whether it is a number. In Lua, the number 1 and the text "1" differ.
    pub is_number: bool,
}

impl Groups {
    /// Returns the groups of the request of the target. Returns `None` if no Lua code has set a table of them.
    pub fn read(&self, target: &Target<'_>) -> Result<Option<Vec<Group>>, String> {
        let state = target.raw.state();
        let interpreter = state.and_then(|state| state.interpreter.as_deref());
        if !interpreter.is_some_and(|interpreter| interpreter.is::<Context>()) {
            // No Lua code has set anything, so a VM is not needed.
            return Ok(None);
        }
        let (ran, written) = vm::with(|vm| {
            let function = self.function(vm, target)?;
            vm.cx.result = None;
            Ok::<_, String>((vm.start(&function, target), vm.cx.result.take()))
        })?;
        match ran {
            Ran::Done(_) => Ok(written.as_deref().map(parse)),
            Ran::Failed(error) => Err(error),
            _ => Err("groups cannot be read at this time".to_owned()),
        }
    }

    fn function(&self, vm: &mut Vm, target: &Target<'_>) -> Result<Rc<Function>, String> {
        let known = self.function.borrow().clone();
        if let Some(known) = known.filter(|known| vm.has(known)) {
            return Ok(known);
        }
        let function = Rc::new(vm.compile(Code::Groups, "", &Globals::all(), target)?);
        *self.function.borrow_mut() = Some(function.clone());
        Ok(function)
    }
}

/// Parses groups as `lua/sandbox.lua` writes them.
fn parse(mut written: &[u8]) -> Vec<Group> {
    let mut groups = Vec::new();
    while let Some((group, rest)) = parse_one(written) {
        groups.push(group);
        written = rest;
    }
    debug_assert!(written.is_empty(), "the groups are well written");
    groups
}

fn parse_one(written: &[u8]) -> Option<(Group, &[u8])> {
    let (kind, rest) = written.split_first()?;
    let colon = memchr::memchr(b':', rest)?;
    let length: usize = std::str::from_utf8(&rest[..colon]).ok()?.parse().ok()?;
    let (text, rest) = rest[colon + 1..].split_at_checked(length)?;
    let group = Group {
        text: text.to_vec(),
        is_number: *kind == b'n',
    };
    Some((group, rest))
}
