//! The resolver as a whole, with a script in place of name servers and a clock that can be turned.

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
