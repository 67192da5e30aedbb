//! Formats an explanation for people.

use admin::explain::{
    Asked, Candidate, Explanation, GatewayAnswer, Named, Plugin, Reason, Seen, Service, Upstream,
    Verdict,
};
use std::fmt::Write;

pub(super) fn explanation(told: &Explanation) -> String {
    let mut out = String::new();
    let matched = match &told.matched {
        Some(route) => format!("gets the route {}", name(route)),
        None => "matches no route".to_owned(),
    };
    let _ = writeln!(out, "{} {matched}", request(&told.request));
    let _ = writeln!(
        out,
        "by revision {}, router_flavor = {}",
        told.revision, told.flavor
    );
    tried(&mut out, told);
    if let Some(asked) = &told.route
        && !is_tried(told, asked)
    {
        let _ = writeln!(out, "\nThe route {}:", name(&asked.named));
        if asked.candidates.is_empty() {
            out.push_str("  requests of this kind cannot reach it\n");
        }
        candidates(&mut out, &asked.candidates);
    }
    if !told.captures.is_empty() {
        out.push_str("\nCaptured:\n");
        for (group, value) in &told.captures {
            let _ = writeln!(out, "  {group} = {value:?}");
        }
    }
    if !told.plugins.is_empty() {
        out.push_str("\nPlugins, in the order they run:\n");
        told.plugins.iter().for_each(|one| plugin(&mut out, one));
    }
    if let Some(one) = &told.service {
        out.push('\n');
        if told.upstream.is_some() && told.plugins.iter().any(may_refuse) {
            out.push_str("If every plugin lets the request pass:\n");
        }
        service(&mut out, one, told.upstream.as_ref());
    }
    if let Some(one) = &told.answer {
        answer(&mut out, one);
    }
    out
}

fn request(seen: &Seen) -> String {
    let method = seen.method.as_deref().map(|method| format!("{method} "));
    let place = match (&seen.host, &seen.sni) {
        (Some(host), _) => host.as_str(),
        (None, Some(sni)) => sni,
        (None, None) => seen.destination.as_deref().unwrap_or_default(),
    };
    format!(
        "{}{}://{place}{}",
        method.unwrap_or_default(),
        seen.protocol,
        seen.path.as_deref().unwrap_or_default()
    )
}

fn name(named: &Named) -> String {
    match &named.name {
        Some(name) => format!("{name} ({})", named.id),
        None => named.id.to_string(),
    }
}

fn tried(out: &mut String, told: &Explanation) {
    if told.candidates.is_empty() {
        out.push_str("\nNo route is a candidate for this request.\n");
    } else {
        out.push_str("\nTried, in this order:\n");
        candidates(out, &told.candidates);
    }
    if told.omitted > 0 {
        let _ = writeln!(out, "  and {} more", told.omitted);
    }
    // A route that the user names has its own section.
    let asked = told.route.as_ref().map(|asked| asked.named.id);
    let others = |closest: &&Candidate| asked != Some(closest.route.id);
    let mut closest = told.closest.iter().filter(others).peekable();
    if closest.peek().is_some() {
        out.push_str("\nClosest of the others:\n");
        candidates(out, closest);
    }
}

/// Whether all candidates of the route that the user names are already listed among the routes that were tried.
fn is_tried(told: &Explanation, asked: &Asked) -> bool {
    let is_listed = |candidate: &Candidate| {
        let mut tried = told.candidates.iter();
        tried.any(|one| one.place == candidate.place && one.route.id == candidate.route.id)
    };
    !asked.candidates.is_empty() && asked.candidates.iter().all(is_listed)
}

fn candidates<'a>(out: &mut String, candidates: impl IntoIterator<Item = &'a Candidate>) {
    for candidate in candidates {
        let verdict = match candidate.verdict {
            Verdict::Matches => "matches",
            Verdict::ComesLater => "matches too, but comes later",
            Verdict::Fails => "does not match",
        };
        let _ = writeln!(out, "  {} {verdict}", name(&candidate.route));
        let _ = writeln!(out, "    {}", candidate.expression);
        let _ = writeln!(
            out,
            "    position {}: {}",
            candidate.place + 1,
            candidate.rank.join("; ")
        );
        candidate.reasons.iter().for_each(|one| reason(out, one));
    }
}

fn reason(out: &mut String, reason: &Reason) {
    if reason.any_of.is_empty() {
        let _ = writeln!(out, "    - {} is false", reason.part);
    } else {
        out.push_str("    - none of these is true:\n");
        for part in &reason.any_of {
            let _ = writeln!(out, "        {part}");
        }
    }
    for (field, values) in &reason.found {
        let values: Vec<String> = values.iter().map(|value| format!("{value:?}")).collect();
        let _ = if values.is_empty() {
            writeln!(out, "      {field} has no value")
        } else {
            writeln!(out, "      {field} is {}", values.join(", "))
        };
    }
}

/// Whether a plugin can answer a request itself.
fn may_refuse(plugin: &Plugin) -> bool {
    !plugin.ignored && plugin.phases.iter().any(|phase| phase == "access")
}

/// Returns the scope with the names of its entities: `route long and service shop`.
fn scope(plugin: &Plugin) -> String {
    let Some(scope) = &plugin.scope else {
        return "some consumers only".to_owned();
    };
    let mut names = plugin.scope_names.iter();
    let kinds = scope.split(" and ").map(|kind| match names.next() {
        Some(name) => format!("{kind} {name}"),
        // An older gateway does not send names.
        None => kind.to_owned(),
    });
    kinds.collect::<Vec<_>>().join(" and ")
}

fn plugin(out: &mut String, plugin: &Plugin) {
    let scope = scope(plugin);
    let _ = write!(
        out,
        "  {} (priority {}; {}): {scope}",
        plugin.name,
        plugin.priority,
        plugin.phases.join(", ")
    );
    if let Some(id) = plugin.id {
        let _ = match &plugin.instance_name {
            Some(name) => write!(out, ", {name} {id}"),
            None => write!(out, ", {id}"),
        };
    }
    match plugin.consumers {
        0 => {}
        1 => out.push_str("; 1 consumer has its own"),
        count => {
            let _ = write!(out, "; {count} consumers have their own");
        }
    }
    if plugin.refuses {
        out.push_str("; not implemented: every request it applies to gets 500");
    }
    if plugin.ignored {
        out.push_str("; not implemented: it is ignored");
    }
    out.push('\n');
    if let Some(needs) = &plugin.needs {
        let _ = writeln!(out, "    needs {needs}");
    }
}

fn service(out: &mut String, service: &Service, upstream: Option<&Upstream>) {
    let port = service.port.map(|port| format!(":{port}"));
    let port = port.unwrap_or_default();
    let _ = writeln!(out, "Service {}", name(&service.named));
    let _ = write!(out, "  {}://{}{port}", service.protocol, service.host);
    if let Some(upstream) = &service.upstream {
        let _ = write!(out, ", the upstream {}", upstream.id);
    }
    out.push('\n');
    if let Some(upstream) = upstream {
        let _ = writeln!(out, "  asked for {}", upstream.uri);
        if let Some(stripped) = &upstream.stripped {
            let _ = writeln!(out, "  {stripped:?} was cut off the path");
        }
        let _ = match &upstream.host {
            Some(host) => writeln!(out, "  Host: {host}"),
            None => writeln!(out, "  Host: that of each target"),
        };
    }
}

fn answer(out: &mut String, answer: &GatewayAnswer) {
    let when = if answer.after_plugins {
        "After its plugins the gateway answers"
    } else {
        "The gateway answers"
    };
    let _ = write!(out, "\n{when} with status {}", answer.status);
    if !answer.message.is_empty() {
        let _ = write!(out, ": {}", answer.message);
    }
    if let Some(location) = &answer.location {
        let _ = write!(out, ", to {location}");
    }
    out.push('\n');
}
