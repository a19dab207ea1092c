//! `setup`: installs whatever is missing to build and test, and nothing else.
//!
//! Each part looks first and installs only what is not there; with everything there it takes
//! less than two seconds and needs no network.

mod apt;
mod linker;
mod prometheus;
mod python;
mod sglang;

pub(crate) use apt::{BPF_RUSTC, has_debian_bpf};
pub(crate) use linker::VERSION as BPF_LINKER;
pub(crate) use prometheus::prometheus;
pub(crate) use python::{python, sglang_wheels, venv_python};
pub(crate) use sglang::{sglang, sglang_model, sglang_python};

use anyhow::Result;

use crate::clock::Moment;
use crate::say;

/// Install what is missing.
pub(crate) fn run() -> Result<()> {
    let begun = Moment::now();
    say::line("setup");
    apt::install()?;
    linker::install()?;
    prometheus::install()?;
    python::install()?;
    let took = Moment::now().seconds_after(begun);
    say::line(format_args!("setup is complete … {took:.1} s"));
    Ok(())
}

/// What `vm` needs beside the rest.
pub(crate) fn vm_tools() -> Result<()> {
    apt::want(&[("qemu-system-x86", "qemu-system-x86_64"), ("cpio", "cpio")])?;
    // Their programs know no `--version`.
    apt::want_files(&[
        ("busybox-static", "/bin/busybox"),
        ("kmod", "/sbin/depmod"),
        ("iproute2", "/bin/rdma"),
        ("libibverbs-dev", "/usr/include/infiniband/verbs.h"),
        ("ibverbs-providers", "/usr/lib/x86_64-linux-gnu/libibverbs/librxe-rdmav34.so"),
        ("xz-utils", "/usr/bin/xz"),
        ("zstd", "/usr/bin/zstd"),
    ])
}

/// What `bench` needs beside the rest.
pub(crate) fn bench_tools() -> Result<()> {
    apt::want(&[("bpftrace", "bpftrace")])
}
