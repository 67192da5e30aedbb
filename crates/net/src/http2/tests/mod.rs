//! Tests of HTTP/2, by section of its RFCs. Most send raw frames to the server, with a stand-in for the HTTP/1.1
//! engine. Others convert heads between HTTP/2 and HTTP/1.1 text.

mod client;
mod compression;
mod frames;
mod links;
mod messages;
mod text;
