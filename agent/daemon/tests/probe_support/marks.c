/* libinflight's marks as its binary interface has them: a `push` first, sixteen bytes each. */
#define MARK(name)                                                     \
  __asm__(".text\n.p2align 4\n.globl inflight_mark_" #name             \
          "\n.type inflight_mark_" #name ", @function\ninflight_mark_" #name \
          ":\n" FIRST "ret\n.size inflight_mark_" #name ", 16\n")

#ifdef NOP5
#define FIRST ".byte 0x0f,0x1f,0x44,0,0\n"
#else
#define FIRST "push %rbp\npop %rbp\n"
#endif

MARK(open);
MARK(append);
MARK(serve);
MARK(serve_end);
MARK(post);
MARK(done);
MARK(phase);
#ifndef WITHOUT_REMOVE
MARK(remove);
#endif
