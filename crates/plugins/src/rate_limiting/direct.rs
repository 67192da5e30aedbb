//! Counting in Redis at each request, as Kong does with `sync_rate = -1`: one script counts in all windows, so that a
//! request costs one round trip. Refused requests are counted too.

use super::counters::{Allowance, Verdict};
use super::names::{self, Names};
use super::window::{Moment, Period};
use services::redis::{Call, RedisError, Script, Server, Value};
use std::sync::LazyLock;

/// Increments counters, and returns their values; -1 stands for a counter that is no number. A new counter gets a lifetime.
/// KEYS: the counters. ARGV: for each the increment and the lifetime in seconds.
pub(crate) static COUNT: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "local counts = {}
for i, key in ipairs(KEYS) do
  local by = tonumber(ARGV[2 * i - 1])
  local count = redis.pcall('INCRBY', key, by)
  if type(count) ~= 'number' then count = -1
  elseif count == by then redis.call('EXPIRE', key, ARGV[2 * i]) end
  counts[i] = count
end
return counts",
    )
});

/// Why there is no count.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CountError {
    #[error(transparent)]
    Redis(#[from] RedisError),
    #[error("a counter in Redis is not a number")]
    NoNumber,
}

/// Counts a request in all its windows.
pub(super) async fn judge(
    server: &Server,
    names: &Names,
    allowances: &[Allowance],
    moment: &Moment,
) -> Result<Verdict, CountError> {
    let keys = allowances
        .iter()
        .map(|one| names.current("", one.period, moment));
    let arguments = allowances
        .iter()
        .flat_map(|one| [b"1".to_vec(), names::lifetime(one.period)]);
    let call = Call::script(&COUNT, keys.collect(), arguments.collect());
    let counts = numbers(&server.run(call).await?, allowances.len())?;
    let mut before = [0; Period::COUNT];
    let mut passes = true;
    for ((before, count), allowance) in before.iter_mut().zip(counts).zip(allowances) {
        *before = count.saturating_sub(1);
        passes &= *before < allowance.requests;
    }
    Ok(Verdict { passes, before })
}

/// Reads the counts that a script returns. `None` stands for a counter that is no number.
pub(super) fn counted(answer: &Value, expected: usize) -> Result<Vec<Option<u64>>, CountError> {
    let Value::Array(values) = answer else {
        return Err(CountError::NoNumber);
    };
    let number = |value: &Value| match value {
        Value::Int(number) => u64::try_from(*number).ok(),
        _ => None,
    };
    let numbers: Vec<Option<u64>> = values.iter().map(number).collect();
    match numbers.len() == expected {
        true => Ok(numbers),
        false => Err(CountError::NoNumber),
    }
}

/// Reads the counts that a script returns, which must all be numbers.
pub(super) fn numbers(answer: &Value, expected: usize) -> Result<Vec<u64>, CountError> {
    let counted: Option<Vec<u64>> = counted(answer, expected)?.into_iter().collect();
    counted.ok_or(CountError::NoNumber)
}
