//! `bench compare`: which figures of two reports differ by more than noise.
