//! A panic in one request closes its connection and affects no other.

use super::acts::Acts;
use super::*;
use plugin::{Filtered, Request, Step};

/// Panics in the phase that the header `x-panic` names.
fn panics() -> Arc<PluginDef> {
    let acts = Acts::new().access(|cx, _| {
        panic_if_asked(cx.request, "access");
        Ok(Step::Continue)
    });
    let acts = acts.header_filter(|cx| {
        panic_if_asked(cx.request, "header_filter");
        Ok(Filtered::Continue)
    });
    acts.log(|cx, _| panic_if_asked(cx.request, "log"))
        .define::<0>()
}

fn panic_if_asked(request: &Request<'_>, phase: &str) {
    if request.head.header("x-panic") == Some(phase.as_bytes()) {
        panic!("the panic of this test, in {phase}");
    }
}

#[test]
fn a_panic_ends_its_connection_and_leaves_the_worker_in_order() {
    run(async {
        let scripts = (0..4).map(|_| answers(OK)).collect();
        let mut setup = Setup::new(upstream(scripts).await);
        setup.plugins = vec![panics()];
        let gateway = setup.start();
        let mut steady = gateway.client().await;
        let mut requests = 0;
        // A panic in `header_filter` happens while the worker's state is borrowed; in the other two phases it does not.
        for (phase, seen) in [("access", ""), ("header_filter", ""), ("log", "200")] {
            steady.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
            assert_eq!(status(&steady.answer().await), "200");
            let answer = gateway
                .exchange(&format!(
                    "GET / HTTP/1.1\r\nHost: a\r\nX-Panic: {phase}\r\n\r\n"
                ))
                .await;
            assert_eq!(status(&answer), seen, "{phase}");
            requests += 2;
            let totals = gateway.plane.totals();
            assert_eq!((totals.requests, totals.active()), (requests, 1), "{phase}");
        }
        steady.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
        assert_eq!(status(&steady.answer().await), "200");
        // Only the connection of `steady` is left, and it waits for a request again.
        while gateway.plane.totals().waiting != 1 {
            tokio::task::yield_now().await;
        }
        assert_eq!(gateway.plane.totals().reading, 0);
        // The log phase comes after the request is counted, which was answered by the upstream.
        let answers = &gateway.plane.all_counters()[0].answers;
        let internal = answers[plugin::Reason::Internal as usize].value();
        assert_eq!(internal, 2);
    });
}
