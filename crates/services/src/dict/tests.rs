use super::*;

const NOW: Duration = Duration::from_secs(1000);

fn text(value: &[u8]) -> Found {
    found(Value::Text(value.into()))
}

fn found(value: Value) -> Found {
    Found {
        value,
        flags: 0,
        is_stale: false,
    }
}

fn set(dict: &Dict, key: &str, value: &[u8], lives: u64) -> Result<bool, Refused> {
    let lives = Duration::from_secs(lives);
    dict.write(key.as_bytes(), text(value), Write::Set, Full::Evict, lives, NOW)
}

#[test]
fn a_value_expires() {
    let dict = Dict::new(1 << 20);
    set(&dict, "a", b"x", 5).unwrap();
    assert_eq!(dict.ttl(b"a", NOW), Ok(Some(Duration::from_secs(5))));
    assert_eq!(dict.get(b"a", NOW + Duration::from_secs(4)), Some(text(b"x")));
    let later = NOW + Duration::from_secs(5);
    assert!(dict.get_stale(b"a", later).unwrap().is_stale);
    assert_eq!(dict.get(b"a", later), None);
    assert_eq!(dict.get_stale(b"a", later), None, "get removes what it finds expired");
}

#[test]
fn the_value_that_was_not_used_for_the_longest_time_makes_room() {
    let dict = Dict::new(3 * (OVERHEAD + 101));
    for key in ["a", "b", "c"] {
        assert_eq!(set(&dict, key, &[b'x'; 100], 0), Ok(false));
    }
    dict.get(b"a", NOW);
    assert_eq!(set(&dict, "d", &[b'x'; 100], 0), Ok(true));
    assert!(dict.get(b"a", NOW).is_some());
    assert!(dict.get(b"b", NOW).is_none());
    let refused = dict.write(b"e", text(&[b'x'; 100]), Write::Add, Full::Refuse, Duration::ZERO, NOW);
    assert_eq!(refused, Err(Refused::NoMemory));
    assert_eq!(set(&dict, "e", &[b'x'; 1000], 0), Err(Refused::NoMemory));
    assert_eq!(dict.free_space(), 0);
}

#[test]
fn numbers_are_added_up() {
    let dict = Dict::new(1 << 20);
    let add = |by, init| dict.increment(b"n", by, init, Duration::ZERO, NOW);
    assert_eq!(add(1.0, None), Err(Refused::NotFound));
    assert_eq!(add(1.0, Some(10.0)), Ok((11.0, false)));
    assert_eq!(add(-2.0, None), Ok((9.0, false)));
    set(&dict, "n", b"x", 0).unwrap();
    assert_eq!(add(1.0, None), Err(Refused::NotANumber));
}

#[test]
fn lists_give_their_memory_back() {
    let dict = Dict::new(4096);
    let push = |value: f64, side| dict.push(b"l", Value::Number(value), side, NOW);
    assert_eq!(push(1.0, Side::Left), Ok(1));
    assert_eq!(push(2.0, Side::Right), Ok(2));
    assert_eq!(dict.pop(b"l", Side::Left, NOW), Ok(Some(Value::Number(1.0))));
    assert_eq!(dict.length(b"l", NOW), Ok(1));
    assert_eq!(dict.pop(b"l", Side::Left, NOW), Ok(Some(Value::Number(2.0))));
    assert_eq!(dict.pop(b"l", Side::Left, NOW), Ok(None));
    assert_eq!(dict.entries().used, 0);
    let mut pushed = 0;
    while push(1.0, Side::Left).is_ok() {
        pushed += 1;
    }
    assert!(pushed < 4096 / ELEMENT_OVERHEAD);
}

#[test]
fn flushed_values_are_gone_and_a_few_are_freed_at_once() {
    let dict = Dict::new(1 << 20);
    for key in ["a", "b", "c", "d", "e"] {
        set(&dict, key, b"x", 0).unwrap();
    }
    let mut keys = Vec::new();
    dict.keys(2, NOW, |key| keys.push(key.to_vec()));
    assert_eq!(keys, [b"e", b"d"]);
    dict.flush_all(NOW);
    assert_eq!(dict.get_stale(b"e", NOW).map(|found| found.is_stale), Some(true));
    assert_eq!(dict.flush_expired(0, NOW), 2);
    assert_eq!(dict.entries().used, 0);
}
