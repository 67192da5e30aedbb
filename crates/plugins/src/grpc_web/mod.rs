//! grpc-web: lets browsers call gRPC services. Source of the behaviour: kong/plugins/grpc-web/handler.lua.

mod codec;
mod config;
mod translate;
