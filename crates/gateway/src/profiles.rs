//! Profiles of CPU time: taken in the gateway for the Admin API, and written to files by `silverback profile`.

use crate::cli::{ProfileCommand, SettingsArgs};
use crate::client::ApiClient;
use crate::commands::{Failure, resolved_settings, say, warn};
use admin::control::{ProfileFormat, ProfileOrder};
use profile::{Error, Options, Profile};
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::thread::Builder;
use std::time::{Duration, SystemTime};
use tokio::sync::oneshot;

/// Duration of a profile, unless the client asks for another one.
const SECONDS: u32 = 30;

/// Maximum time to name the functions and to send the profile.
const AFTERWARDS: Duration = Duration::from_secs(120);

/// Functions that `silverback profile` prints.
const SHOWN: usize = 10;

/// Takes a profile of this process on a thread of its own. Dropping the future ends it.
pub(crate) async fn take(order: ProfileOrder) -> Result<Vec<u8>, admin::Failure> {
    let options = Options {
        seconds: order.seconds.unwrap_or(SECONDS),
        frequency: order.frequency.unwrap_or(profile::DEFAULT_FREQUENCY),
    };
    // Held until the profile is there, so that it ends when the client is gone.
    let (_wanted, alive) = channel();
    let (send, taken) = oneshot::channel();
    let work = move || {
        let bytes = profile::cpu(options, &alive).map(|profile| match order.format {
            ProfileFormat::Pprof => profile.to_pprof(),
            ProfileFormat::Svg => profile.to_flame_graph().into_bytes(),
            ProfileFormat::Folded => profile.to_folded().into_bytes(),
        });
        crate::memory::give_back();
        // Nobody wants the profile of a client that is gone.
        let _ = send.send(bytes);
    };
    let thread = Builder::new().name("profile".to_owned()).spawn(work);
    thread.map_err(admin::Failure::internal)?;
    match taken.await {
        Ok(taken) => taken.map_err(|error| refused(&error)),
        Err(_) => Err(admin::Failure::internal("the profile has panicked")),
    }
}

fn refused(error: &Error) -> admin::Failure {
    let status = match error {
        Error::Busy => 409,
        Error::Seconds | Error::Frequency => 400,
        Error::System { .. } => 501,
        Error::Cancelled | Error::Malformed(_) => 500,
    };
    admin::Failure::with_status(status, error.to_string())
}

pub(crate) fn run(command: &ProfileCommand) -> Result<(), Failure> {
    match command {
        ProfileCommand::Cpu {
            seconds,
            frequency,
            output,
            settings,
        } => cpu(*seconds, *frequency, output.as_deref(), settings),
        ProfileCommand::Heap { settings } => {
            let path = "/debug/pprof/heap";
            ask(settings, path, AFTERWARDS).map(drop)
        }
    }
}

fn cpu(
    seconds: u32,
    frequency: u32,
    output: Option<&Path>,
    settings: &SettingsArgs,
) -> Result<(), Failure> {
    let files = Files::named(output);
    let limit = Duration::from_secs(seconds.into()) + AFTERWARDS;
    let path = format!("/debug/pprof/profile?seconds={seconds}&frequency={frequency}");
    let bytes = ask(settings, &path, limit)?;
    let profile = Profile::from_pprof(&bytes).map_err(Failure::new)?;
    let mut text = summary(&profile);
    if let Some(path) = &files.pprof {
        write(path, &bytes)?;
        text += &format!("wrote {0}: `go tool pprof -http=: {0}`\n", path.display());
    }
    if let Some(path) = &files.svg {
        write(path, profile.to_flame_graph().as_bytes())?;
        text += &format!("wrote {}: open it in a browser\n", path.display());
    }
    profile.notes.iter().for_each(|note| warn(note));
    say(&text)
}

/// Sends a request to the gateway, and returns the body of a success.
fn ask(settings: &SettingsArgs, path: &str, limit: Duration) -> Result<Vec<u8>, Failure> {
    let settings = resolved_settings(settings)?;
    let client = ApiClient::connect(&settings.prefix).map_err(Failure::new)?;
    let client = client.within(limit);
    let response = client.request("GET", path, &[], "").map_err(Failure::new)?;
    if response.is_success() {
        return Ok(response.body.into());
    }
    let said = response.json().unwrap_or_default();
    Err(match said["message"].as_str() {
        Some(message) if response.status != 404 => Failure::new(message),
        _ => Failure::new("the running gateway is an older version, which takes no profiles"),
    })
}

/// The files to write.
#[derive(Debug, PartialEq, Eq)]
struct Files {
    pprof: Option<PathBuf>,
    svg: Option<PathBuf>,
}

impl Files {
    fn named(output: Option<&Path>) -> Self {
        let Some(output) = output else {
            let now = admin::time::rfc3339(admin::time::since_1970(SystemTime::now()));
            let short = now.replace([':', '-'], "");
            let time = short.split('.').next().unwrap_or_default();
            return Self::both(Path::new(&format!("silverback-cpu-{time}Z")));
        };
        let name = output.file_name().unwrap_or_default().to_string_lossy();
        if name.ends_with(".svg") {
            Self {
                pprof: None,
                svg: Some(output.to_owned()),
            }
        } else if name.ends_with(".pb.gz") {
            Self {
                pprof: Some(output.to_owned()),
                svg: None,
            }
        } else {
            Self::both(output)
        }
    }

    fn both(name: &Path) -> Self {
        let with = |end: &str| {
            let mut path = name.as_os_str().to_owned();
            path.push(end);
            Some(PathBuf::from(path))
        };
        Self {
            pprof: with(".pb.gz"),
            svg: with(".svg"),
        }
    }
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    std::fs::write(path, bytes).map_err(Failure::of(&format!("write {}", path.display())))
}

/// The functions in which most time was spent, without the functions that they call.
fn summary(profile: &Profile) -> String {
    let mut own = vec![0; profile.functions.len()];
    for stack in &profile.stacks {
        if let Some(samples) = stack
            .frames
            .first()
            .and_then(|frame| own.get_mut(frame.function))
        {
            *samples += stack.samples;
        }
    }
    let total = profile.samples();
    let mut ranked: Vec<(u64, &str)> = own
        .into_iter()
        .zip(&profile.functions)
        .map(|(samples, function): (u64, _)| (samples, function.name.as_str()))
        .filter(|(samples, _)| *samples > 0)
        .collect();
    ranked.sort_unstable_by(|a, b| b.cmp(a));
    let seconds = total as f64 * profile.period as f64 / 1e9;
    let mut text = format!(
        "{seconds:.2} s of CPU time in {:.1} s ({total} samples)\n",
        profile.duration.as_secs_f64()
    );
    for (samples, name) in ranked.into_iter().take(SHOWN) {
        let share = samples as f64 * 100.0 / total as f64;
        text += &format!("{share:6.2} %  {name}\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_the_name_decides_what_is_written() {
        let paths = |name: &str| {
            let files = Files::named(Some(Path::new(name)));
            let text = |path: Option<PathBuf>| path.map(|path| path.display().to_string());
            (text(files.pprof), text(files.svg))
        };
        assert_eq!(paths("d/a.svg"), (None, Some("d/a.svg".to_owned())));
        assert_eq!(paths("a.pb.gz"), (Some("a.pb.gz".to_owned()), None));
        let both = (Some("d.x/a.pb.gz".to_owned()), Some("d.x/a.svg".to_owned()));
        assert_eq!(paths("d.x/a"), both);
        let files = Files::named(None);
        let name = files.svg.expect("both").display().to_string();
        assert!(name.starts_with("silverback-cpu-20"), "{name}");
        assert!(name.ends_with("Z.svg"), "{name}");
    }
}
