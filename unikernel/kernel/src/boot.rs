//! The first instructions: from 32-bit mode without paging, in which PVH and Multiboot2 enter the kernel, to `start` in
//! 64-bit mode with the first 4 GiB identity mapped. Also contains the headers for boot loaders, and the first
//! instructions of further processors, which start in 16-bit mode in a page below 1 MiB (`processors`).
//!
//! Read first: Xen's `docs/misc/pvh.pandoc`; Multiboot2 specification, 3.1 and 3.3; Intel SDM volume 3, 9.4 and 10.9.

use core::arch::global_asm;

use crate::loader::{BY_MULTIBOOT2, BY_PVH};

/// Selector of the code segment for the 32-bit instructions of further processors.
const CODE_32: u16 = 24;

global_asm!(
    r#"
    .section .multiboot2, "a"
    .p2align 3
multiboot2_header:
    .long 0xe85250d6, 0, multiboot2_end - multiboot2_header
    .long -(0xe85250d6 + multiboot2_end - multiboot2_header)
    .p2align 3
    .short 6, 0                 // modules begin at a page
    .long 8
    .short 0, 0
    .long 8
multiboot2_end:

    .section .note.pvh, "a", @note
    .p2align 2
    .long 4, 8, 18
    .asciz "Xen"
    .quad pvh_start

    .section .boot, "ax"
    .code32
    .global pvh_start
pvh_start:
    mov edi, {by_pvh}
    jmp 1f
    .global multiboot2_start
multiboot2_start:
    mov edi, {by_multiboot2}
1:  cli
    cld
    mov esp, offset stack_top
    mov edx, edi
    mov edi, offset bss_start
    mov ecx, offset bss_end
    sub ecx, edi
    shr ecx, 2
    xor eax, eax
    rep stosd

    mov eax, offset map_512g
    or eax, 3
    mov dword ptr [map_top], eax
    mov edi, offset map_512g
    mov eax, offset map_1g
    or eax, 3
    mov ecx, 4
2:  mov dword ptr [edi], eax
    add edi, 8
    add eax, 4096
    dec ecx
    jnz 2b
    mov edi, offset map_1g
    mov eax, 0x83               // 2 MiB, writable, present
    mov ecx, 2048
3:  mov dword ptr [edi], eax
    add edi, 8
    add eax, 0x200000
    dec ecx
    jnz 3b

    mov eax, cr4
    or eax, 0x620               // PAE, SSE
    mov cr4, eax
    mov eax, offset map_top
    mov cr3, eax
    mov edi, edx
    mov esi, ebx
    mov ecx, 0xc0000080         // EFER: long mode
    rdmsr
    or eax, 0x100
    wrmsr
    mov eax, cr0
    and eax, 0x9ffffffb         // caches on, no FPU emulation
    or eax, 0x80010023          // paging, write protection, FPU
    mov cr0, eax
    lgdt [descriptors_pointer]
    .byte 0xea                  // far jump to 64 bits
    .long long_start
    .short 8
    .code64
long_start:
    mov eax, 16
    mov ds, eax
    mov es, eax
    mov ss, eax
    xor eax, eax
    mov fs, eax
    mov gs, eax
    mov edi, edi
    mov esi, esi
    mov rsp, offset stack_top
    xor ebp, ebp
    call {start}
    ud2

    .code16
    .global trampoline_start
trampoline_start:               // copied to a page, and run there
    cli
    cld
    mov ax, cs
    mov ds, ax
    .byte 0x66, 0x0f, 0x01, 0x16 // lgdt with an address of 32 bits
    .short trampoline_pointer - trampoline_start
    mov eax, cr0
    or al, 1
    mov cr0, eax
    .byte 0x66, 0xea            // far jump to 32 bits
    .long processor_start
    .short {code_32}
trampoline_pointer:
    .short descriptors_end - descriptors - 1
    .long descriptors
    .global trampoline_end
trampoline_end:

    .code32
processor_start:
    mov eax, 16
    mov ds, eax
    mov es, eax
    mov ss, eax
    mov eax, cr4
    or eax, 0x620               // as above
    mov cr4, eax
    mov eax, offset map_top
    mov cr3, eax
    mov ecx, 0xc0000080
    rdmsr
    or eax, dword ptr [processor_efer]
    wrmsr
    mov eax, cr0
    and eax, 0x9ffffffb
    or eax, 0x80010023
    mov cr0, eax
    .byte 0xea
    .long processor_long
    .short 8
    .code64
processor_long:
    mov eax, 16
    mov ds, eax
    mov es, eax
    mov ss, eax
    xor eax, eax
    mov fs, eax
    mov gs, eax
    xchg rax, qword ptr [processor_stack]
    test rax, rax               // nobody waits for it any more
    jz 9f
    mov rsp, rax
    mov rdi, qword ptr [rax]
    mov rsi, rax
    xor ebp, ebp
    call {processor}
    ud2
9:  cli
    hlt
    jmp 9b

    .section .data
    .p2align 4
    .global descriptors
descriptors:
    .quad 0
    .quad 0x00af9b000000ffff    // 64-bit code
    .quad 0x00cf93000000ffff    // data
    .quad 0x00cf9b000000ffff    // 32-bit code
    .skip 16 * {cores_max}      // the task segments
descriptors_end:
descriptors_pointer:
    .short descriptors_end - descriptors - 1
    .quad descriptors
    .p2align 3
    .global processor_stack     // of the next processor to start: above, its number
processor_stack: .quad 0
    .global processor_efer
processor_efer: .long 0

    .section .bss.tables, "aw", @nobits
    .p2align 12
    .global map_top
map_top:    .skip 4096
    .global map_512g
map_512g:   .skip 4096
    .global map_1g
map_1g:     .skip 4 * 4096
    .text
"#,
    by_pvh = const BY_PVH,
    by_multiboot2 = const BY_MULTIBOOT2,
    start = sym crate::start,
    code_32 = const CODE_32,
    cores_max = const crate::cores::MAX,
    processor = sym crate::processors::begin,
);
