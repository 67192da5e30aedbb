//! Tests of the plugin: priorities, and the text before a record. The socket is tested with the sinks.

use super::{Config, prefix};
use crate::testing;
use serde_json::json;
use services::sinks::{Facility, Severity};
use std::time::{Duration, SystemTime};

#[test]
fn the_text_before_a_record_is_that_of_syslog() {
    let at = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000 + 20 * 86_400);
    let (buffer, length) = prefix(Facility::Local7.priority(Severity::Debug), at);
    let text = std::str::from_utf8(&buffer[..length]).unwrap();
    let expected = format!("<191>Dec  4 22:13:20 kong[{}]: ", std::process::id());
    assert_eq!(text, expected);
    assert_eq!(Facility::Kern.priority(Severity::Emerg), 0);
    assert_eq!(Facility::Authpriv.priority(Severity::Info), 86);
}

#[test]
fn the_severity_depends_on_the_status_and_unimportant_records_are_not_sent() {
    let config: Config = testing::config(
        "syslog",
        json!({
            "log_level": "warning", "successful_severity": "notice", "client_errors_severity": "warning",
            "server_errors_severity": "crit", "facility": "uucp"
        }),
    );
    let severities = config.severities();
    assert_eq!(config.facility, Facility::Uucp);
    assert_eq!(severities.of(Some(200)), None);
    assert_eq!(severities.of(Some(399)), None);
    assert_eq!(severities.of(Some(400)), Some(Severity::Warning));
    assert_eq!(severities.of(Some(499)), Some(Severity::Warning));
    assert_eq!(severities.of(Some(500)), Some(Severity::Crit));
    assert_eq!(severities.of(None), None);
    let config: Config = testing::config("syslog", json!({}));
    assert_eq!(config.severities().of(None), Some(Severity::Info));
    assert_eq!(config.facility, Facility::User);
}
