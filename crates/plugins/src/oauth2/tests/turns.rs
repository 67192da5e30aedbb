//! The queue of what costs a hash.

use super::super::secrets::Overload;
use super::super::turns::{Asker, Permit, Turns};
use std::net::IpAddr;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

type Waiting = Pin<Box<dyn Future<Output = Result<Permit, Overload>>>>;

fn asker(address: &str, client: u64) -> Asker {
    let address: IpAddr = address.parse().expect("an address");
    Asker::new(address, client)
}

/// Those who ask one after the other while the only permit is taken. Returns those who got it, in the order in which they
/// did, and those who were refused.
fn run(max_waiting: usize, askers: &[Asker]) -> (Vec<usize>, Vec<usize>) {
    let turns = Turns::new(1, max_waiting);
    let poll = |future: &mut Waiting| {
        future
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()))
    };
    let wait = |asker| -> Waiting {
        let turns = turns.clone();
        Box::pin(async move { turns.permit(asker).await })
    };
    let mut held = wait(asker("192.0.2.250", 0));
    let Poll::Ready(Ok(held)) = poll(&mut held) else {
        panic!("the permit is free");
    };
    let (mut served, mut refused) = (Vec::new(), Vec::new());
    let mut waiting = Vec::new();
    for (number, asker) in askers.iter().enumerate() {
        let mut future = wait(*asker);
        match poll(&mut future) {
            Poll::Pending => waiting.push((number, future)),
            Poll::Ready(permit) => {
                assert!(permit.is_err(), "the permit is taken");
                refused.push(number);
            }
        }
    }
    drop(held);
    while !waiting.is_empty() {
        let before = waiting.len();
        waiting.retain_mut(|(number, future)| {
            match poll(future) {
                Poll::Pending => return true,
                Poll::Ready(Ok(_permit)) => served.push(*number),
                Poll::Ready(Err(_)) => refused.push(*number),
            }
            false
        });
        assert!(waiting.len() < before, "a permit was lost");
    }
    (served, refused)
}

#[test]
fn addresses_take_turns_and_so_do_the_client_ids_of_an_address() {
    let flood = |client| asker("192.0.2.1", client);
    let askers = [
        flood(1),
        flood(1),
        flood(1),
        flood(2),
        asker("192.0.2.2", 1),
        asker("192.0.2.2", 1),
    ];
    assert_eq!(run(10, &askers), (vec![0, 4, 3, 5, 1, 2], vec![]));
}

#[test]
fn the_longest_line_loses_if_too_many_wait() {
    // A flood from one address with as many client ids as requests.
    let mut askers: Vec<_> = (0..5).map(|client| asker("192.0.2.1", client)).collect();
    askers.push(asker("192.0.2.2", 9));
    let (served, refused) = run(5, &askers);
    assert!(served.contains(&5), "{served:?}");
    assert_eq!((served.len(), refused.len()), (5, 1));
    // A flood with one client id at an address that others share.
    let mut askers = vec![asker("192.0.2.1", 1); 5];
    askers.push(asker("192.0.2.1", 2));
    assert_eq!(run(5, &askers), (vec![0, 5, 1, 2, 3], vec![4]));
    // Who floods is refused itself.
    let askers = vec![asker("192.0.2.1", 1); 7];
    assert_eq!(run(5, &askers), (vec![0, 1, 2, 3, 4], vec![5, 6]));
}

#[test]
fn who_asks_from_many_networks_of_one_site_keeps_nobody_else() {
    let flood = (0..5).map(|network| asker(&format!("2001:db8:1:{network}::1"), network));
    for other in ["2001:db8:2::1", "192.0.2.1"] {
        let mut askers: Vec<_> = flood.clone().collect();
        askers.extend([asker(other, 9); 2]);
        let (served, refused) = run(5, &askers);
        // It gets every second turn.
        assert_eq!((served, refused), (vec![0, 5, 1, 6, 2], vec![3, 4]));
    }
}

#[test]
fn a_network_of_ipv6_is_one_address_and_a_mapped_address_is_one_of_ipv4() {
    assert_eq!(asker("2001:db8::1", 1), asker("2001:db8::ffff:0:2", 1));
    assert_ne!(asker("2001:db8::1", 1), asker("2001:db8:0:1::1", 1));
    assert_eq!(asker("::ffff:192.0.2.1", 1), asker("192.0.2.1", 1));
    assert_ne!(asker("::ffff:192.0.2.1", 1), asker("192.0.2.2", 1));
}

#[test]
fn who_leaves_loses_no_permit() {
    let turns = Turns::new(1, 2);
    let poll = |future: &mut Waiting| {
        future
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()))
    };
    let wait = |client| -> Waiting {
        let turns = turns.clone();
        Box::pin(async move { turns.permit(asker("192.0.2.1", client)).await })
    };
    let Poll::Ready(Ok(held)) = poll(&mut wait(1)) else {
        panic!("the permit is free");
    };
    let (mut leaves, mut gets_it, mut stays) = (wait(1), wait(1), wait(1));
    assert!(poll(&mut leaves).is_pending() && poll(&mut gets_it).is_pending());
    drop(leaves);
    // The one that has left makes room.
    assert!(poll(&mut stays).is_pending());
    drop(held);
    // It has got the permit, and leaves before it has noticed.
    drop(gets_it);
    assert!(matches!(poll(&mut stays), Poll::Ready(Ok(_))));
    assert!(matches!(poll(&mut wait(1)), Poll::Ready(Ok(_))));
}
