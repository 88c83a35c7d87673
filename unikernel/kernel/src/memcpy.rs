//! `memcpy` and its relatives, which the compiler calls and no C library provides. They are written in assembly, since
//! the compiler would replace a copy loop with a call of `memcpy`. Up to 128 bytes are copied by plain moves, with all
//! loads before all stores, so that overlapping is harmless; more bytes by a string instruction.

use core::arch::global_asm;

global_asm!(
    r#"
    .section .text.bytes, "ax"
    .p2align 4
    .global memcpy
memcpy:
    mov rax, rdi
    cmp rdx, 16
    jb 4f
    cmp rdx, 32
    ja 2f
    movups xmm0, [rsi]
    movups xmm1, [rsi + rdx - 16]
    movups [rdi], xmm0
    movups [rdi + rdx - 16], xmm1
    ret
2:  cmp rdx, 64
    ja 3f
    movups xmm0, [rsi]
    movups xmm1, [rsi + 16]
    movups xmm2, [rsi + rdx - 32]
    movups xmm3, [rsi + rdx - 16]
    movups [rdi], xmm0
    movups [rdi + 16], xmm1
    movups [rdi + rdx - 32], xmm2
    movups [rdi + rdx - 16], xmm3
    ret
3:  cmp rdx, 128
    ja 8f
    movups xmm0, [rsi]
    movups xmm1, [rsi + 16]
    movups xmm2, [rsi + 32]
    movups xmm3, [rsi + 48]
    movups xmm4, [rsi + rdx - 64]
    movups xmm5, [rsi + rdx - 48]
    movups xmm6, [rsi + rdx - 32]
    movups xmm7, [rsi + rdx - 16]
    movups [rdi], xmm0
    movups [rdi + 16], xmm1
    movups [rdi + 32], xmm2
    movups [rdi + 48], xmm3
    movups [rdi + rdx - 64], xmm4
    movups [rdi + rdx - 48], xmm5
    movups [rdi + rdx - 32], xmm6
    movups [rdi + rdx - 16], xmm7
    ret
4:  cmp edx, 8
    jb 5f
    mov rcx, [rsi]
    mov r8, [rsi + rdx - 8]
    mov [rdi], rcx
    mov [rdi + rdx - 8], r8
    ret
5:  cmp edx, 4
    jb 6f
    mov ecx, [rsi]
    mov r8d, [rsi + rdx - 4]
    mov [rdi], ecx
    mov [rdi + rdx - 4], r8d
    ret
6:  test edx, edx
    jz 7f
    movzx ecx, byte ptr [rsi]
    movzx r8d, byte ptr [rsi + rdx - 1]
    mov r10, rdx
    shr r10
    movzx r9d, byte ptr [rsi + r10]
    mov [rdi], cl
    mov [rdi + r10], r9b
    mov [rdi + rdx - 1], r8b
7:  ret
8:  mov rcx, rdx
    rep movsb
    ret

    .p2align 4
    .global memmove
memmove:
    cmp rdx, 128
    jbe memcpy
    mov rcx, rdi
    sub rcx, rsi
    cmp rcx, rdx
    jae memcpy
    // Forward into itself: from the end, 16 bytes at a time; memcpy does the rest.
2:  movups xmm0, [rsi + rdx - 16]
    movups [rdi + rdx - 16], xmm0
    sub rdx, 16
    cmp rdx, 16
    jae 2b
    jmp memcpy

    .p2align 4
    .global memset
memset:
    mov r8, rdi
    movzx eax, sil
    cmp rdx, 16
    jb 4f
    movd xmm0, eax
    punpcklbw xmm0, xmm0
    pshuflw xmm0, xmm0, 0
    punpcklqdq xmm0, xmm0
    cmp rdx, 128
    ja 3f
    movups [rdi + rdx - 16], xmm0
2:  movups [rdi], xmm0
    add rdi, 16
    sub rdx, 16
    cmp rdx, 16
    jae 2b
    mov rax, r8
    ret
3:  mov rcx, rdx
    rep stosb
    mov rax, r8
    ret
4:  test edx, edx
    jz 6f
5:  mov [rdi + rdx - 1], al
    dec edx
    jnz 5b
6:  mov rax, r8
    ret

    .p2align 4
    .global memcmp
    .global bcmp
memcmp:
bcmp:
    cmp rdx, 8
    jb 3f
1:  mov rax, [rdi]
    mov rcx, [rsi]
    cmp rax, rcx
    jne 2f
    add rdi, 8
    add rsi, 8
    sub rdx, 8
    cmp rdx, 8
    jae 1b
    jmp 3f
2:  bswap rax
    bswap rcx
    cmp rax, rcx
    sbb eax, eax
    or eax, 1
    ret
3:  test rdx, rdx
    jz 5f
4:  movzx eax, byte ptr [rdi]
    movzx ecx, byte ptr [rsi]
    sub eax, ecx
    jne 6f
    inc rdi
    inc rsi
    dec rdx
    jnz 4b
5:  xor eax, eax
6:  ret

    // Referred to by the precompiled `core`; nothing unwinds.
    .global _Unwind_Resume
_Unwind_Resume:
    ud2
    .text
"#
);
