//! The instruction under a probe decides what a hit costs, and whether it is safe.

/// Why an instruction does not get a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Kernels from 6.18 turn a probed 5-byte nop into a call; a child forked from that process
    /// then dies at its next hit, even after the agent has gone.
    #[error("the function begins with a 5-byte nop, and a probe there kills forked children")]
    FiveByteNop,
    /// The kernel cannot emulate the instruction and single-steps it: 40-80 us a hit.
    #[error("the instruction ({0:02x} …) would be single-stepped, 40-80 us a hit")]
    SingleStepped(u8),
    /// The file ends before the function.
    #[error("the function lies outside the file")]
    Unreadable,
    /// The architecture's instructions are not known here.
    #[error("instructions of ELF machine {0} are not known")]
    Machine(u16),
}

/// `EM_X86_64`.
pub(crate) const X86_64: u16 = 62;
/// `EM_AARCH64`.
pub(crate) const AARCH64: u16 = 183;

const ENDBR64: &[u8] = &[0xf3, 0x0f, 0x1e, 0xfa];
const NOP5: &[u8] = &[0x0f, 0x1f, 0x44, 0x00, 0x00];
/// `bti c`.
const BTI_C: &[u8] = &[0x5f, 0x24, 0x03, 0xd5];
const A64_NOP: &[u8] = &[0x1f, 0x20, 0x03, 0xd5];

/// Looks at the first bytes of a function; gives the distance from its start to the instruction
/// that a probe may sit on.
pub(crate) fn entry(machine: u16, code: &[u8]) -> Result<u64, Refusal> {
    let landing = match machine {
        X86_64 => ENDBR64,
        AARCH64 => BTI_C,
        other => return Err(Refusal::Machine(other)),
    };
    let (skip, rest) = match code.strip_prefix(landing) {
        Some(rest) => (4, rest),
        None => (0, code),
    };
    let first = *rest.first().ok_or(Refusal::Unreadable)?;
    if machine == X86_64 && rest.starts_with(NOP5) {
        return Err(Refusal::FiveByteNop);
    }
    let emulated = match machine {
        X86_64 => emulated_x86(rest),
        _ => rest.starts_with(A64_NOP),
    };
    if emulated { Ok(skip) } else { Err(Refusal::SingleStepped(first)) }
}

/// Looks at an instruction inside a function of a known build, `at` bytes from its start.
pub(crate) fn inside(machine: u16, code: &[u8], at: u64) -> Result<u64, Refusal> {
    if machine != X86_64 {
        return Err(Refusal::Machine(machine));
    }
    let rest = usize::try_from(at).ok().and_then(|at| code.get(at..)).unwrap_or_default();
    match rest {
        [] => Err(Refusal::Unreadable),
        // A conditional jump: emulated, with the flags of the probed thread.
        [0x70..=0x7f, ..] | [0x0f, 0x80..=0x8f, ..] => Ok(at),
        [first, ..] => Err(Refusal::SingleStepped(*first)),
    }
}

/// `push` of any register, and `nop`: what `arch/x86/kernel/uprobes.c` has emulated in every
/// kernel from 4.17 on. It emulates jumps and calls too, but a function that begins with one is
/// a trampoline, and its probe would fire for whatever passes through.
fn emulated_x86(code: &[u8]) -> bool {
    match code {
        [0x50..=0x57 | 0x90, ..] => true,
        [0x41, second, ..] => (0x50..=0x57).contains(second),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FINE: Result<u64, Refusal> = Ok(0);

    #[test]
    fn x86_entries() {
        let cases: &[(&str, &[u8], Result<u64, Refusal>)] = &[
            ("push %rbp", &[0x55, 0x48], FINE),
            ("push %rdi", &[0x57], FINE),
            ("push %r12", &[0x41, 0x54, 0x55], FINE),
            ("nop", &[0x90], FINE),
            ("endbr64; push", &[0xf3, 0x0f, 0x1e, 0xfa, 0x55], Ok(4)),
            ("nop5", &[0x0f, 0x1f, 0x44, 0, 0, 0xc3], Err(Refusal::FiveByteNop)),
            (
                "endbr64; nop5",
                &[0xf3, 0x0f, 0x1e, 0xfa, 0x0f, 0x1f, 0x44, 0, 0],
                Err(Refusal::FiveByteNop),
            ),
            ("nop4", &[0x0f, 0x1f, 0x40, 0], Err(Refusal::SingleStepped(0x0f))),
            ("mov", &[0x48, 0x89, 0xf3], Err(Refusal::SingleStepped(0x48))),
            ("add r13d", &[0x41, 0x83, 0xc5], Err(Refusal::SingleStepped(0x41))),
            ("jmp", &[0xe9, 0, 0, 0, 0], Err(Refusal::SingleStepped(0xe9))),
            ("endbr64 alone", &[0xf3, 0x0f, 0x1e, 0xfa], Err(Refusal::Unreadable)),
            ("nothing", &[], Err(Refusal::Unreadable)),
        ];
        for (name, code, wanted) in cases {
            assert_eq!(entry(X86_64, code), *wanted, "{name}");
        }
    }

    #[test]
    fn a_point_inside_is_a_conditional_jump() {
        let code = [0x55, 0x84, 0xc0, 0x74, 0x64, 0x0f, 0x84, 0, 0, 0, 0, 0xc3];
        assert_eq!(inside(X86_64, &code, 3), Ok(3));
        assert_eq!(inside(X86_64, &code, 5), Ok(5));
        assert_eq!(inside(X86_64, &code, 1), Err(Refusal::SingleStepped(0x84)));
        assert_eq!(inside(X86_64, &code, 11), Err(Refusal::SingleStepped(0xc3)));
        assert_eq!(inside(X86_64, &code, 12), Err(Refusal::Unreadable));
        assert_eq!(inside(X86_64, &code, u64::MAX), Err(Refusal::Unreadable));
        assert_eq!(inside(AARCH64, &code, 3), Err(Refusal::Machine(AARCH64)));
    }

    #[test]
    fn arm_entries() {
        assert_eq!(entry(AARCH64, A64_NOP), Ok(0));
        assert_eq!(entry(AARCH64, &[BTI_C, A64_NOP].concat()), Ok(4));
        assert_eq!(entry(AARCH64, &[0xfd, 0x7b, 0xbf, 0xa9]), Err(Refusal::SingleStepped(0xfd)));
    }

    #[test]
    fn another_machine_is_named() {
        assert_eq!(entry(243, &[0x55]), Err(Refusal::Machine(243)));
    }
}
