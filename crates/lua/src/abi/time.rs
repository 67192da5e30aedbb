//! Times as texts.

#![expect(unsafe_code, reason = "the local time zone is C's")]

use super::{Cx, NONE};
use std::time::{Duration, UNIX_EPOCH};
use time::OffsetDateTime;
use time::macros::format_description;

super::numbered! {
    /// The forms of a time.
    pub(super) enum Form {
        Http = "http",
        Cookie = "cookie",
        Utc = "utc",
        Local = "local",
        Today = "today",
    }
}

/// Writes a time, given as seconds since 1970. Returns [`NONE`] if it is too far away.
pub(super) fn write(cx: &mut Cx, form: i32, seconds: f64) -> i32 {
    let Some(form) = Form::numbered(form) else {
        return NONE;
    };
    let seconds = seconds as i64;
    let local = matches!(form, Form::Local | Form::Today);
    let shown = seconds.saturating_add(if local { local_offset(seconds) } else { 0 });
    let Ok(time) = OffsetDateTime::from_unix_timestamp(shown) else {
        return NONE;
    };
    let text = match form {
        Form::Http => time.format(format_description!(
            "[weekday repr:short], [day] [month repr:short] [year] [hour]:[minute]:[second] GMT"
        )),
        // Years after 2037 have four digits, because some clients take two digits for the last century, as in nginx.
        Form::Cookie if time.year() > 2037 => time.format(format_description!(
            "[weekday repr:short], [day]-[month repr:short]-[year] [hour]:[minute]:[second] GMT"
        )),
        Form::Cookie => time.format(format_description!(
            "[weekday repr:short], [day]-[month repr:short]-[year repr:last_two] [hour]:[minute]:[second] GMT"
        )),
        Form::Utc | Form::Local => time.format(format_description!(
            "[year]-[month]-[day] [hour]:[minute]:[second]"
        )),
        Form::Today => time.format(format_description!("[year]-[month]-[day]")),
    };
    match text {
        Ok(text) => cx.made(|out| out.extend_from_slice(text.as_bytes())),
        Err(_) => NONE,
    }
}

/// Returns the seconds since 1970 of one of the three forms of RFC 9110, section 5.6.7.
pub(super) fn parse(cx: &mut Cx, text: &[u8]) -> i32 {
    let text = std::str::from_utf8(text).ok();
    let time = text.and_then(|text| httpdate::parse_http_date(text).ok());
    let time = time.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    time.map_or(NONE, |time: Duration| cx.number(time.as_secs() as f64))
}

/// Seconds by which the local time is ahead of UTC.
fn local_offset(seconds: i64) -> i64 {
    let Ok(seconds) = libc::time_t::try_from(seconds) else {
        return 0;
    };
    // SAFETY: a zeroed `tm` is valid, and the call writes to it only.
    let (found, local) = unsafe {
        let mut local: libc::tm = std::mem::zeroed();
        (libc::localtime_r(&seconds, &mut local), local)
    };
    if found.is_null() { 0 } else { local.tm_gmtoff }
}
