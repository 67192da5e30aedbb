//! Reads the spans that the collector's exporter `debug` prints.

/// A span as it is printed.
#[derive(Debug, Default, PartialEq, Eq)]
struct Span<'t> {
    /// The resource's `service.name`.
    service: &'t str,
    trace: &'t str,
    parent: &'t str,
    id: &'t str,
    name: &'t str,
}

/// Parses the spans. Each begins with a line such as `Span #0`, and has lines such as `    Name           : kong`. The
/// attributes of its resource come before it.
fn spans(said: &str) -> Vec<Span<'_>> {
    let mut spans: Vec<Span<'_>> = Vec::new();
    let mut service = "";
    for line in said.lines() {
        if let Some((_, value)) = line.split_once("-> service.name: Str(") {
            service = value.trim_end_matches(')');
        }
        if line.starts_with("Span #") {
            spans.push(Span {
                service,
                ..Span::default()
            });
        }
        let (Some(span), Some((name, value))) = (spans.last_mut(), line.split_once(" : ")) else {
            continue;
        };
        match name.trim() {
            "Trace ID" => span.trace = value,
            "Parent ID" => span.parent = value,
            "ID" => span.id = value,
            "Name" => span.name = value,
            _ => {}
        }
    }
    spans
}

/// Follows the parents from the span with this service and name, within a trace. Returns service and name of each, and at
/// last the id of the parent that is no printed span, without a service.
pub(super) fn path(said: &str, trace: &str, from: (&str, &str)) -> Vec<(String, String)> {
    let mut spans = spans(said);
    spans.retain(|span| span.trace == trace);
    let mut path = Vec::new();
    let first = spans.iter().find(|span| (span.service, span.name) == from);
    let mut next = first;
    while let Some(span) = next {
        path.push((span.service.to_owned(), span.name.to_owned()));
        next = spans.iter().find(|other| other.id == span.parent);
        if next.is_none() {
            path.push((String::new(), span.parent.to_owned()));
        }
        // A span that is above itself would lead around for ever.
        if path.len() > spans.len() {
            next = None;
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(service: &str, parent: &str, id: &str, name: &str) -> String {
        format!(
            "Resource attributes:\n     -> service.name: Str({service})\nSpan #0\n    Trace ID       : t\n    \
             Parent ID      : {parent}\n    ID             : {id}\n    Name           : {name}\n"
        )
    }

    fn shown(said: &str) -> Vec<String> {
        let path = path(said, "t", ("stock", "serve"));
        let shown = path
            .iter()
            .map(|(service, name)| format!("{service}/{name}"));
        shown.collect()
    }

    #[test]
    fn a_path_leads_over_parents_to_one_that_is_not_there() {
        let outer = span("edge", "client", "a", "kong") + &span("edge", "a", "b", "kong.balancer");
        let said = span("stock", "b", "c", "serve") + &outer;
        let expected = ["stock/serve", "edge/kong.balancer", "edge/kong", "/client"];
        assert_eq!(shown(&said), expected);
        assert_eq!(
            shown(&(span("stock", "x", "c", "serve") + &outer)),
            ["stock/serve", "/x"]
        );
        assert!(shown(&outer).is_empty());
        let around = span("stock", "b", "c", "serve") + &span("edge", "c", "b", "kong");
        assert_eq!(shown(&around).len(), 3);
    }
}
