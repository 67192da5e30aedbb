//! Tests of leases: single steps of a node, a simulation of ten nodes, and the script against its model.

mod model;
mod plugin;
mod script;
mod simulation;
mod steps;
mod world;
