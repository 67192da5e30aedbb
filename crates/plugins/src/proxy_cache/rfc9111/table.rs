//! The statements of RFC 9111 and RFC 5861 as a table. Each row is a statement with the requests that show it.
//!
//! A request is `+SECONDS METHOD TARGET|Header: value|…`: the clock advances first. `;` separates the response of the
//! upstream, in the form `STATUS|Header: value|…`. The last column is what happens: whether the upstream is asked (`-`,
//! `ask`, or `cond` for a request that validates), the status for the client, and the number of the request that the
//! body was made for. `#` stands for `Cache-Control: `.

use super::tests::Cache;

type Request = (&'static str, &'static str);

const TABLE: &[(&str, &[Request])] = &[
    // Section 2: the cache key.
    (
        "the method is a part of the key, and HEAD is answered from GET",
        &[
            ("+0 GET /;200|#max-age=9", "ask 200 1"),
            ("+0 HEAD /;200", "- 200"),
            ("+0 OPTIONS /;200|#max-age=9", "ask 200 3"),
        ],
    ),
    (
        "the query is a part of the key",
        &[
            ("+0 GET /?a;200|#max-age=9", "ask 200 1"),
            ("+0 GET /?b;200|#max-age=9", "ask 200 2"),
            ("+0 GET /?a;200", "- 200 1"),
        ],
    ),
    (
        "the host is a part of the key",
        &[
            ("+0 GET /|Host: a.test;200|#max-age=9", "ask 200 1"),
            ("+0 GET /|Host: b.test;200|#max-age=9", "ask 200 2"),
            ("+0 GET /|Host: A.test;200", "- 200 1"),
        ],
    ),
    // Section 3: storing.
    (
        "a response with no-store is not stored",
        &[
            ("+0 GET /;200|#no-store, max-age=9", "ask 200 1"),
            ("+0 GET /;200", "ask 200 2"),
        ],
    ),
    (
        "no-store of a request forbids to store its response",
        &[
            ("+0 GET /|#no-store;200|#max-age=9", "ask 200 1"),
            ("+0 GET /;200|#max-age=9", "ask 200 2"),
        ],
    ),
    (
        "a private response is not stored by a shared cache",
        &[
            ("+0 GET /;200|#private, max-age=9", "ask 200 1"),
            ("+0 GET /;200", "ask 200 2"),
        ],
    ),
    (
        "private with names hides these fields only",
        &[
            (
                "+0 GET /;200|#private=\"X-A\", max-age=9|X-A: secret",
                "ask 200 1",
            ),
            ("+0 GET /;200", "- 200 1"),
        ],
    ),
    (
        "a status that no guess is allowed for needs explicit freshness",
        &[
            ("+0 GET /a;403|ETag: \"a\"", "ask 403 1"),
            ("+0 GET /a;403|#max-age=9", "ask 403 2"),
            ("+0 GET /a;403", "- 403 2"),
        ],
    ),
    (
        "must-understand overrides no-store for a known status",
        &[
            (
                "+0 GET /;200|#must-understand, no-store, max-age=9",
                "ask 200 1",
            ),
            ("+0 GET /;200", "- 200 1"),
        ],
    ),
    (
        "a part of a response is not stored",
        &[
            (
                "+0 GET /;206|#max-age=9|Content-Range: bytes 0-1/9",
                "ask 206 1",
            ),
            ("+0 GET /;200|#max-age=9", "ask 200 2"),
        ],
    ),
    (
        "a response that sets a cookie is not stored",
        &[
            ("+0 GET /;200|#max-age=9|Set-Cookie: a=b", "ask 200 1"),
            ("+0 GET /;200", "ask 200 2"),
        ],
    ),
    (
        "a cookie that no-cache names is not replayed, and the rest is stored",
        &[
            (
                "+0 GET /;200|#max-age=9, no-cache=\"Set-Cookie\"|Set-Cookie: a=b",
                "ask 200 1",
            ),
            ("+0 GET /;200", "- 200 1"),
        ],
    ),
    // Section 3.5: authenticated requests.
    (
        "a response to Authorization is not stored",
        &[
            ("+0 GET /|Authorization: a;200|#max-age=9", "ask 200 1"),
            ("+0 GET /;200|#max-age=9", "ask 200 2"),
            ("+0 GET /|Authorization: a;200|#max-age=9", "ask 200 3"),
            ("+0 GET /;200", "- 200 2"),
        ],
    ),
    (
        "public shares a response to Authorization",
        &[
            (
                "+0 GET /|Authorization: a;200|#max-age=9, public",
                "ask 200 1",
            ),
            ("+0 GET /|Authorization: b;200", "- 200 1"),
        ],
    ),
    (
        "s-maxage shares a response to Authorization",
        &[
            ("+0 GET /|Authorization: a;200|#s-maxage=9", "ask 200 1"),
            ("+0 GET /;200", "- 200 1"),
        ],
    ),
    (
        "must-revalidate shares a response to Authorization",
        &[
            (
                "+0 GET /|Authorization: a;200|#max-age=9, must-revalidate",
                "ask 200 1",
            ),
            ("+0 GET /;200", "- 200 1"),
        ],
    ),
    // Section 4.1: Vary.
    (
        "a response is sent for the same values of the headers in Vary only",
        &[
            ("+0 GET /|X-A: 1;200|#max-age=9|Vary: x-a", "ask 200 1"),
            ("+0 GET /|X-A: 2;200|#max-age=9|Vary: x-a", "ask 200 2"),
            ("+0 GET /|X-A:  1 ;200", "- 200 1"),
            ("+0 GET /|X-A: 2;200", "- 200 2"),
            ("+0 GET /;200|#max-age=9|Vary: x-a", "ask 200 5"),
        ],
    ),
    (
        "blanks and lines of a list do not matter for Vary",
        &[
            ("+0 GET /|X-A: 1, 2;200|#max-age=9|Vary: x-a", "ask 200 1"),
            ("+0 GET /|X-A: 1|X-A: 2;200", "- 200 1"),
            ("+0 GET /|X-A: 2,1;200|#max-age=9|Vary: x-a", "ask 200 3"),
        ],
    ),
    (
        "Vary: * matches nothing",
        &[
            ("+0 GET /;200|#max-age=9|Vary: *", "ask 200 1"),
            ("+0 GET /;200", "ask 200 2"),
        ],
    ),
    (
        "what the gateway sets for each client is nothing that requests can be compared by",
        &[
            (
                "+0 GET /|X-Real-IP: 1;200|#max-age=9|Vary: X-Real-IP",
                "ask 200 1",
            ),
            ("+0 GET /|X-Real-IP: 1;200", "ask 200 2"),
        ],
    ),
    (
        "no client can remove a response for others",
        &[
            ("+0 GET /;200|#max-age=9|ETag: \"a\"", "ask 200 1"),
            ("+0 GET /|#no-store, no-cache;304|ETag: \"a\"", "cond 200 1"),
            ("+0 GET /|#no-store, no-cache;200|#max-age=9", "cond 200 3"),
            ("+0 GET /|Authorization: a|#no-cache;200", "ask 200 4"),
            ("+0 GET /;200", "- 200 1"),
        ],
    ),
    (
        "a refusal for one client does not remove the response for others",
        &[
            ("+0 GET /;200|#max-age=9", "ask 200 1"),
            ("+0 GET /|#no-cache;429", "ask 429 2"),
            ("+0 GET /|#no-cache;406", "ask 406 3"),
            ("+0 GET /|#no-cache|If-None-Match: \"x\";304", "cond 304"),
            ("+0 GET /;200", "- 200 1"),
            ("+0 GET /|#no-cache;410", "ask 410 6"),
            ("+0 GET /;200", "ask 200 7"),
        ],
    ),
    // Section 4.2: freshness.
    (
        "a response is fresh until its age reaches max-age",
        &[
            ("+0 GET /;200|#max-age=9", "ask 200 1"),
            ("+8 GET /;200", "- 200 1"),
            ("+1 GET /;200", "ask 200 3"),
        ],
    ),
    (
        "s-maxage comes before max-age, and max-age before Expires",
        &[
            ("+0 GET /a;200|#max-age=1, s-maxage=9", "ask 200 1"),
            ("+0 GET /b;200|#max-age=9|Expires: 0", "ask 200 2"),
            ("+8 GET /a;200", "- 200 1"),
            ("+0 GET /b;200", "- 200 2"),
        ],
    ),
    (
        "Expires that is no date is in the past",
        &[
            ("+0 GET /;200|Expires: 0", "ask 200 1"),
            ("+0 GET /;200", "ask 200 2"),
        ],
    ),
    (
        "an age that cannot be read makes a response stale",
        &[
            (
                "+0 GET /;200|#max-age=9x|Expires: Thu, 01 Jan 2099 00:00:00 GMT",
                "ask 200 1",
            ),
            ("+0 GET /;200", "ask 200 2"),
        ],
    ),
    (
        "the age on arrival counts",
        &[
            ("+0 GET /;200|#max-age=9|Age: 5", "ask 200 1"),
            ("+3 GET /;200", "- 200 1"),
            ("+1 GET /;200", "ask 200 3"),
        ],
    ),
    (
        "freshness is guessed from Last-Modified, within cache_ttl",
        &[
            (
                "+0 GET /;200|Last-Modified: Thu, 01 Jan 1998 00:00:00 GMT",
                "ask 200 1",
            ),
            ("+299 GET /;200", "- 200 1"),
            ("+1 GET /;304", "cond 200 1"),
        ],
    ),
    // Section 4.2.4: stale responses.
    (
        "must-revalidate forbids to send a stale response",
        &[
            ("+0 GET /;200|#max-age=9, must-revalidate", "ask 200 1"),
            ("+9 GET /|#max-stale;200", "ask 200 2"),
        ],
    ),
    (
        "proxy-revalidate forbids it, too",
        &[
            ("+0 GET /;200|#max-age=9, proxy-revalidate", "ask 200 1"),
            ("+9 GET /|#max-stale;200", "ask 200 2"),
        ],
    ),
    (
        "s-maxage implies proxy-revalidate",
        &[
            ("+0 GET /;200|#s-maxage=9|ETag: \"a\"", "ask 200 1"),
            ("+9 GET /|#max-stale;304|ETag: \"a\"", "cond 200 1"),
        ],
    ),
    // Section 4.3: validation.
    (
        "a stale response is validated by its entity tag",
        &[
            ("+0 GET /;200|#max-age=9|ETag: \"a\"", "ask 200 1"),
            ("+9 GET /;304|#max-age=20|ETag: \"a\"", "cond 200 1"),
            ("+19 GET /;200", "- 200 1"),
        ],
    ),
    (
        "a validation that fails replaces the response",
        &[
            ("+0 GET /;200|#max-age=9|ETag: \"a\"", "ask 200 1"),
            ("+9 GET /;200|#max-age=9|ETag: \"b\"", "cond 200 2"),
            ("+0 GET /;200", "- 200 2"),
        ],
    ),
    (
        "a stored response answers a client that has it already",
        &[
            ("+0 GET /;200|#max-age=9|ETag: \"a\"", "ask 200 1"),
            ("+0 GET /|If-None-Match: \"x\", W/\"a\";200", "- 304"),
            ("+0 GET /|If-None-Match: \"b\";200", "- 200 1"),
            ("+9 GET /|If-None-Match: \"a\";304|ETag: \"a\"", "cond 304"),
        ],
    ),
    (
        "If-None-Match comes before If-Modified-Since",
        &[
            (
                "+0 GET /;200|#max-age=9|ETag: \"a\"|Last-Modified: Thu, 01 Jan 1998 00:00:00 GMT",
                "ask 200 1",
            ),
            (
                "+0 GET /|If-Modified-Since: Fri, 02 Jan 1998 00:00:00 GMT;200",
                "- 304",
            ),
            (
                "+0 GET /|If-Modified-Since: Wed, 31 Dec 1997 00:00:00 GMT;200",
                "- 200 1",
            ),
            (
                "+0 GET /|If-None-Match: \"b\"|If-Modified-Since: Fri, 02 Jan 1998 00:00:00 GMT;200",
                "- 200 1",
            ),
        ],
    ),
    (
        "a condition of a client without a stored response goes to the upstream",
        &[
            ("+0 GET /|If-None-Match: \"a\";304|ETag: \"a\"", "cond 304"),
            ("+0 GET /;200|#max-age=9", "ask 200 2"),
        ],
    ),
    (
        "a 304 that forbids to store removes the response",
        &[
            ("+0 GET /;200|#max-age=9|ETag: \"a\"", "ask 200 1"),
            ("+9 GET /;304|#no-store|ETag: \"a\"", "cond 200 1"),
            ("+0 GET /;200", "ask 200 3"),
        ],
    ),
    (
        "HEAD shows that a stored response is out of date",
        &[
            ("+0 GET /;200|#max-age=9|ETag: \"a\"", "ask 200 1"),
            ("+9 HEAD /;200|ETag: \"b\"", "ask 200"),
            ("+0 GET /;200|#max-age=9", "ask 200 3"),
        ],
    ),
    // Section 4.4: invalidation.
    (
        "a successful unsafe method invalidates the URI, for all variants",
        &[
            ("+0 GET /;200|#max-age=9|Vary: x-a", "ask 200 1"),
            ("+0 GET /|X-A: 1;200|#max-age=9|Vary: x-a", "ask 200 2"),
            ("+0 POST /;303", "ask 303 3"),
            ("+0 GET /;200|#max-age=9|Vary: x-a", "ask 200 4"),
            ("+0 GET /|X-A: 1;200", "ask 200 5"),
        ],
    ),
    (
        "an unknown method invalidates, too",
        &[
            ("+0 GET /;200|#max-age=9", "ask 200 1"),
            ("+0 PURGEX /;200", "ask 200 2"),
            ("+0 GET /;200", "ask 200 3"),
        ],
    ),
    (
        "a failed unsafe method invalidates nothing",
        &[
            ("+0 GET /;200|#max-age=9", "ask 200 1"),
            ("+0 DELETE /;500", "ask 500 2"),
            ("+0 GET /;200", "- 200 1"),
        ],
    ),
    (
        "Location and Content-Location are invalidated on the same host",
        &[
            ("+0 GET /a/b|Host: a.test;200|#max-age=9", "ask 200 1"),
            ("+0 GET /a/c|Host: a.test;200|#max-age=9", "ask 200 2"),
            (
                "+0 PUT /a/d|Host: a.test;201|Location: b|Content-Location: http://b.test/a/c",
                "ask 201 3",
            ),
            ("+0 GET /a/b|Host: a.test;200", "ask 200 4"),
            ("+0 GET /a/c|Host: a.test;200", "- 200 2"),
        ],
    ),
    // Section 5.2.1: directives of requests.
    (
        "max-age of a request limits the age",
        &[
            ("+0 GET /;200|#max-age=9", "ask 200 1"),
            ("+3 GET /|#max-age=3;200", "- 200 1"),
            ("+0 GET /|#max-age=2;200|#max-age=9", "ask 200 3"),
            ("+0 GET /|#max-age=0;200|#max-age=9", "ask 200 4"),
        ],
    ),
    (
        "max-stale of a request allows a stale response",
        &[
            ("+0 GET /;200|#max-age=9", "ask 200 1"),
            ("+12 GET /|#max-stale=3;200", "- 200 1"),
            ("+0 GET /|#max-stale;200", "- 200 1"),
            ("+0 GET /|#max-stale=2;200|#max-age=9", "ask 200 4"),
        ],
    ),
    (
        "min-fresh of a request demands freshness that lasts",
        &[
            ("+0 GET /;200|#max-age=9", "ask 200 1"),
            ("+4 GET /|#min-fresh=5;200", "- 200 1"),
            ("+0 GET /|#min-fresh=6;200|#max-age=9", "ask 200 3"),
        ],
    ),
    (
        "no-cache of a request, also as Pragma, demands validation",
        &[
            ("+0 GET /;200|#max-age=9|ETag: \"a\"", "ask 200 1"),
            ("+0 GET /|#no-cache;304|ETag: \"a\"", "cond 200 1"),
            ("+0 GET /|Pragma: no-cache;304|ETag: \"a\"", "cond 200 1"),
            ("+0 GET /|Pragma: no-cache|#max-age=9;200", "- 200 1"),
        ],
    ),
    (
        "only-if-cached does not ask the upstream",
        &[
            ("+0 GET /|#only-if-cached;200", "- 504"),
            ("+0 GET /;200|#max-age=9", "ask 200 2"),
            ("+0 GET /|#only-if-cached;200", "- 200 2"),
            ("+9 GET /|#only-if-cached;200", "- 504"),
        ],
    ),
    // Section 5.2.2: directives of responses.
    (
        "no-cache of a response demands validation of each use",
        &[
            ("+0 GET /;200|#no-cache, max-age=9|ETag: \"a\"", "ask 200 1"),
            ("+0 GET /;304|ETag: \"a\"", "cond 200 1"),
            ("+0 GET /|#max-stale;304|ETag: \"a\"", "cond 200 1"),
        ],
    ),
    (
        "directives in quoted strings do not count",
        &[
            (
                "+0 GET /;200|#x=\"no-store\", max-age=9, y=\"a, private\"",
                "ask 200 1",
            ),
            ("+0 GET /;200", "- 200 1"),
        ],
    ),
    // RFC 9110, section 14.2: ranges are left alone.
    (
        "a range goes to the upstream",
        &[
            ("+0 GET /;200|#max-age=9", "ask 200 1"),
            ("+0 GET /|Range: bytes=0-1;206", "ask 206 2"),
            ("+0 GET /;200", "- 200 1"),
        ],
    ),
    // RFC 5861.
    (
        "stale-if-error sends a stale response in place of an error",
        &[
            ("+0 GET /;200|#max-age=9, stale-if-error=20", "ask 200 1"),
            ("+9 GET /;503|Retry-After: 9", "ask 200 1"),
            ("+0 GET /;fails", "ask 200 1"),
            ("+0 GET /;404", "ask 404 4"),
            ("+0 GET /;500", "ask 500 5"),
        ],
    ),
    (
        "stale-if-error of a request does the same, and has an end",
        &[
            ("+0 GET /;200|#max-age=9", "ask 200 1"),
            ("+12 GET /|#stale-if-error=4;503", "ask 200 1"),
            ("+0 GET /|#stale-if-error=3;503", "ask 503 3"),
        ],
    ),
    (
        "must-revalidate comes before stale-if-error",
        &[
            (
                "+0 GET /;200|#max-age=9, stale-if-error=20, must-revalidate",
                "ask 200 1",
            ),
            ("+9 GET /;503", "ask 503 2"),
        ],
    ),
    (
        "stale-while-revalidate sends the stored response at once, and has an end",
        &[
            (
                "+0 GET /;200|#max-age=9, stale-while-revalidate=5|ETag: \"a\"",
                "ask 200 1",
            ),
            ("+13 GET /;200", "- 200 1"),
            ("+1 GET /;304|ETag: \"a\"", "cond 200 1"),
        ],
    ),
    (
        "a 304 with another entity tag confirms the stored response only for the request itself",
        &[
            ("+0 GET /;200|#max-age=9|ETag: \"a\"", "ask 200 1"),
            ("+9 GET /;304|#max-age=9|ETag: \"b\"", "cond 200 1"),
            ("+0 GET /;200|#max-age=9|ETag: W/\"b\"", "ask 200 3"),
            ("+9 GET /;304|#max-age=9|ETag: \"b\"", "cond 200 3"),
            ("+0 GET /;200", "- 200 3"),
        ],
    ),
    (
        "a name in Vary means only the header that is spelled so",
        &[
            ("+0 GET /|X-A: 1;200|#max-age=9|Vary: x_a", "ask 200 1"),
            ("+0 GET /|X-A: 2;200", "- 200 1"),
            ("+0 GET /|x_a: 2;200|#max-age=9|Vary: x_a", "ask 200 3"),
            ("+0 GET /|x_a: 2;200", "- 200 3"),
        ],
    ),
];

#[test]
fn the_statements_of_the_rfcs_hold() {
    let mut wrong = Vec::new();
    for (statement, requests) in TABLE {
        let cache = Cache::new();
        for (number, (request, wanted)) in requests.iter().enumerate() {
            let happened = cache.play(number + 1, request);
            if happened != *wanted {
                let step = number + 1;
                wrong.push(format!(
                    "{statement}: request {step}: {happened}, not {wanted}"
                ));
                break;
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
