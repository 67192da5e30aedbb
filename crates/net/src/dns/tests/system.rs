//! Tests how resolv.conf and the hosts file are used.

use super::script::{addresses, now, settings, start, wait};
use crate::dns::answer::ResolveError;
use crate::dns::settings::{DnsSettings, LookupKind};
use std::fs;

fn with_files(conf: &str, hosts: &str) -> (tempfile::TempDir, DnsSettings) {
    let folder = tempfile::tempdir().unwrap();
    let settings = DnsSettings {
        resolv_conf: folder.path().join("resolv.conf"),
        hosts_file: folder.path().join("hosts"),
        ..settings()
    };
    fs::write(&settings.resolv_conf, conf).unwrap();
    fs::write(&settings.hosts_file, hosts).unwrap();
    (folder, settings)
}

#[tokio::test(start_paused = true)]
async fn the_hosts_file_comes_before_name_servers() {
    let (_folder, settings) = with_files(
        "",
        "10.0.0.8 Db.test\n10.0.0.9 db.test\nfd00::1 db.test v6.test",
    );
    let (resolver, script) = start(settings);
    script.set("db.test 60 SRV 0 0 1 db.test");
    assert_eq!(
        addresses(&resolver.host("db.test", 80)).await,
        ["10.0.0.8:80", "10.0.0.9:80"]
    );
    assert_eq!(
        addresses(&resolver.host("v6.test", 80)).await,
        ["[fd00::1]:80"]
    );
    assert_eq!(
        addresses(&resolver.host("localhost", 80)).await,
        ["127.0.0.1:80"]
    );
    assert!(script.asked().is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_family_of_the_hosts_file_is_that_of_the_order() {
    let (_folder, settings) = with_files("", "10.0.0.8 db.test\nfd00::1 db.test");
    let order = vec![LookupKind::Aaaa, LookupKind::A];
    let (resolver, _script) = start(DnsSettings { order, ..settings });
    assert_eq!(
        addresses(&resolver.host("db.test", 80)).await,
        ["[fd00::1]:80"]
    );
}

#[tokio::test(start_paused = true)]
async fn short_names_are_found_by_the_search_list() {
    let (_folder, settings) = with_files("search one.test two.test\noptions ndots:2", "");
    let (resolver, script) = start(DnsSettings {
        order: vec![LookupKind::A],
        ..settings
    });
    script.set("db.two.test 60 A 10.0.0.1\na.db.one.test 60 A 10.0.0.2");
    assert_eq!(addresses(&resolver.host("db", 80)).await, ["10.0.0.1:80"]);
    assert_eq!(script.asked(), ["db.one.test A", "db.two.test A"]);
    assert_eq!(addresses(&resolver.host("a.db", 80)).await, ["10.0.0.2:80"]);
    assert_eq!(script.asked(), ["a.db.one.test A"]);
    let absolute = resolver.host("db.", 80);
    wait(1.0).await;
    assert_eq!(now(&absolute), "name resolution failed");
    assert_eq!(script.asked(), ["db A"]);
}

#[tokio::test(start_paused = true)]
async fn files_are_read_again_when_they_change() {
    let (_folder, settings) = with_files("search one.test", "10.0.0.1 a.test");
    let (resolver, script) = start(settings.clone());
    script.set("b.one.test 600 A 10.0.0.2\nb.two.test 600 A 10.0.0.3");
    let (a, b) = (resolver.host("a.test", 80), resolver.host("b", 80));
    assert_eq!(addresses(&a).await, ["10.0.0.1:80"]);
    assert_eq!(addresses(&b).await, ["10.0.0.2:80"]);
    fs::write(&settings.hosts_file, "10.0.0.77 a.test").unwrap();
    fs::write(&settings.resolv_conf, "search two.test\n").unwrap();
    wait(11.0).await;
    assert_eq!(now(&a), "10.0.0.77:80");
    assert_eq!(now(&b), "10.0.0.3:80");
}

#[tokio::test(start_paused = true)]
async fn a_line_removed_from_the_hosts_file_is_not_used_while_name_servers_fail() {
    let (_folder, settings) = with_files("", "10.0.0.1 a.test");
    let (resolver, script) = start(settings.clone());
    let host = resolver.host("a.test", 80);
    assert_eq!(addresses(&host).await, ["10.0.0.1:80"]);
    script.go_down(Some(ResolveError::Timeout));
    fs::write(&settings.hosts_file, "").unwrap();
    wait(11.0).await;
    assert_eq!(now(&host), ResolveError::Timeout.to_string());
}

#[tokio::test(start_paused = true)]
async fn new_settings_hold_from_the_reload_on() {
    let (resolver, script) = start(settings());
    script.set("a.test 600 A 10.0.0.1\na.test 600 AAAA fd00::1");
    let host = resolver.host("a.test", 80);
    assert_eq!(addresses(&host).await, ["10.0.0.1:80"]);
    resolver.reload(DnsSettings {
        order: vec![LookupKind::Aaaa],
        ..settings()
    });
    wait(6.0).await;
    assert_eq!(now(&host), "[fd00::1]:80");
}
