//! HTTP/2 by section of its RFCs: raw frames against the server with a stand-in for the engine, and the conversion of
//! heads between HTTP/2 and text.

mod client;
mod compression;
mod frames;
mod links;
mod messages;
mod text;
