//! Linker arguments of the shared library.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Without a soname, a program linked against a path would look for that path at run time.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libinflight.so");
    // A second copy of the library in a process must hit its own markers, not the first copy's.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-Bsymbolic");
}
