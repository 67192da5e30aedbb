//! Shared dictionaries (`ngx.shared`). Their memory is a service of the node (`services::dict`).

use super::{Cx, FOUND, NO_REQUEST, NONE, PANIC};
use services::dict::{Dict, Found, Full, Refused, Side, Value, Write, ZONES};
use std::time::Duration;

super::numbered! {
    /// The kinds of values, as Lua sees them.
    enum Kind {
        Nil = "nil",
        Text = "string",
        Number = "number",
        False = "false",
        True = "true",
        List = "list",
    }
}

super::numbered! {
    /// What [`operate`] does with a key.
    pub(super) enum Operation {
        Get = "get",
        GetStale = "get_stale",
        Set = "set",
        SafeSet = "safe_set",
        Add = "add",
        SafeAdd = "safe_add",
        Replace = "replace",
        Delete = "delete",
        Increment = "increment",
        PushLeft = "push_left",
        PushRight = "push_right",
        PopLeft = "pop_left",
        PopRight = "pop_right",
        Length = "length",
        Ttl = "ttl",
        Expire = "expire",
        Capacity = "capacity",
        FreeSpace = "free_space",
        FlushAll = "flush_all",
        FlushExpired = "flush_expired",
        Keys = "keys",
    }
}

super::numbered! {
    /// The results of [`operate`] besides values.
    pub(super) enum Outcome {
        NotFound = "not_found",
        Done = "done",
        Exists = "exists",
        NoMemory = "no_memory",
        NotANumber = "not_a_number",
        NotAList = "not_a_list",
    }
}

pub(super) const KINDS: &[&str] = Kind::NAMES;

/// The names of the dictionaries in the order of their numbers.
pub(super) fn zones() -> impl Iterator<Item = (&'static str, u32)> {
    ZONES.iter().map(|(name, _)| *name).zip(0..)
}

/// The longest time that a value may live. Longer ones are cut, so that no sum of times overflows.
const LONGEST: f64 = 1e10;

fn seconds(number: f64) -> Duration {
    Duration::try_from_secs_f64(number.clamp(0.0, LONGEST)).unwrap_or_default()
}

/// Works on the dictionary whose number is in the low 16 bits of `what`; the operation is in those above, and the kind of
/// the value in `kind`. `number` has a number to store, `number2` seconds, and `flags` the user's flags or a count.
///
/// Returns the kind of the value that was found, or an [`Outcome`]. `flags` is then the user's flags of the value, or 1
/// if others were removed for it.
pub(super) fn operate(cx: &mut Cx, what: i32, kind: i32, key: &[u8], value: &[u8]) -> i32 {
    let Some(operation) = Operation::numbered(what >> 16) else {
        return PANIC;
    };
    let target = cx.target;
    let Some(node) = target.node() else {
        return NO_REQUEST;
    };
    let Some(dict) = usize::try_from(what & 0xffff).ok().and_then(|at| node.dicts.numbered(at)) else {
        return PANIC;
    };
    let now = node.clock.since_epoch();
    let lives = seconds(cx.number2);
    let given = || match Kind::numbered(kind) {
        Some(Kind::Number) => Value::Number(cx.number),
        Some(Kind::False) => Value::Bool(false),
        Some(Kind::True) => Value::Bool(true),
        _ => Value::Text(value.into()),
    };
    let write = |how, full| {
        let found = Found {
            value: given(),
            flags: cx.flags,
            is_stale: false,
        };
        dict.write(key, found, how, full, lives, now)
    };
    let result = match operation {
        Operation::Get => return found(cx, dict.get(key, now)),
        Operation::GetStale => return found(cx, dict.get_stale(key, now)),
        Operation::Set => write(Write::Set, Full::Evict),
        Operation::SafeSet => write(Write::Set, Full::Refuse),
        Operation::Add => write(Write::Add, Full::Evict),
        Operation::SafeAdd => write(Write::Add, Full::Refuse),
        Operation::Replace => write(Write::Replace, Full::Evict),
        Operation::Delete => {
            dict.delete(key);
            Ok(false)
        }
        Operation::Increment => {
            // The text has the number to start with, if there is one.
            let init = value.try_into().ok().map(f64::from_ne_bytes);
            dict.increment(key, cx.number, init, lives, now).map(|(sum, evicted)| {
                cx.number = sum;
                evicted
            })
        }
        Operation::PushLeft => counted(cx, dict.push(key, given(), Side::Left, now)),
        Operation::PushRight => counted(cx, dict.push(key, given(), Side::Right, now)),
        Operation::Length => counted(cx, dict.length(key, now)),
        Operation::PopLeft => return popped(cx, dict.pop(key, Side::Left, now)),
        Operation::PopRight => return popped(cx, dict.pop(key, Side::Right, now)),
        Operation::Ttl => dict.ttl(key, now).map(|ttl| {
            cx.number = ttl.unwrap_or_default().as_secs_f64();
            false
        }),
        Operation::Expire => dict.expire(key, lives, now).map(|()| false),
        Operation::Capacity => counted(cx, Ok(dict.capacity())),
        Operation::FreeSpace => counted(cx, Ok(dict.free_space())),
        Operation::FlushAll => {
            dict.flush_all(now);
            Ok(false)
        }
        Operation::FlushExpired => {
            let flushed = dict.flush_expired(cx.flags as usize, now);
            counted(cx, Ok(flushed))
        }
        Operation::Keys => return keys(cx, dict, now),
    };
    outcome(cx, result)
}

fn outcome(cx: &mut Cx, result: Result<bool, Refused>) -> i32 {
    cx.flags = u32::from(result == Ok(true));
    let outcome = match result {
        Ok(_) => Outcome::Done,
        Err(Refused::Exists) => Outcome::Exists,
        Err(Refused::NotFound) => Outcome::NotFound,
        Err(Refused::NoMemory) => Outcome::NoMemory,
        Err(Refused::NotANumber) => Outcome::NotANumber,
        Err(Refused::NotAList) => Outcome::NotAList,
    };
    outcome as i32
}

fn counted(cx: &mut Cx, count: Result<usize, Refused>) -> Result<bool, Refused> {
    count.map(|count| {
        cx.number = count as f64;
        false
    })
}

fn found(cx: &mut Cx, found: Option<Found>) -> i32 {
    let Some(found) = found else {
        return NONE;
    };
    cx.flags = found.flags;
    cx.number2 = f64::from(u8::from(found.is_stale));
    show(cx, &found.value)
}

/// Returns an element of a list, or the negative number of an error.
fn popped(cx: &mut Cx, value: Result<Option<Value>, Refused>) -> i32 {
    match value {
        Ok(None) => NONE,
        Ok(Some(value)) => show(cx, &value),
        Err(_) => -(Outcome::NotAList as i32) - 16,
    }
}

fn show(cx: &mut Cx, value: &Value) -> i32 {
    let kind = match value {
        Value::Bool(false) => Kind::False,
        Value::Bool(true) => Kind::True,
        Value::Number(number) => {
            cx.number = *number;
            Kind::Number
        }
        Value::Text(text) => {
            cx.made(|out| out.extend_from_slice(text));
            Kind::Text
        }
        Value::List(_) => Kind::List,
    };
    kind as i32
}

/// Makes a list of keys.
fn keys(cx: &mut Cx, dict: &Dict, now: Duration) -> i32 {
    let most = cx.flags as usize;
    super::list::fill(cx, |push| dict.keys(most, now, |key| push(key, b"")))
}

const _: () = assert!(FOUND == Outcome::Done as i32);
