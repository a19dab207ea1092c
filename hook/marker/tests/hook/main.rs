//! libinflight as an engine meets it: the shared library, a C program on it (`engine.c`), and
//! its table read from outside, as the agent does.
//!
//! Needs root: `/proc/PID/map_files` and uprobes are not for others.

#[cfg(test)]
mod elf;
#[cfg(test)]
mod engine;
#[cfg(test)]
mod fork;
#[cfg(test)]
mod kill;
#[cfg(test)]
mod probe;
#[cfg(test)]
mod setup;
#[cfg(test)]
mod threads;
