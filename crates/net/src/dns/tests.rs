//! Tests of the whole resolver with scripted name servers and a paused clock.

mod aliases;
mod kinds;
mod many;
mod messages;
mod outage;
mod refresh;
mod script;
mod services;
mod statistics;
mod system;
