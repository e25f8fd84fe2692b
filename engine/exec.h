/*
 * Execs: programs run in a sandbox for a client, their streams captured byte-exact.
 */
#pragma once

#include <stdint.h>

struct sandbox;

/* The sandbox goes: every exec of it ends with it. */
void execs_end(struct sandbox *sandbox);
/* sandbox.c: an exec is over and freed. */
void sandbox_exec_over(struct sandbox *sandbox);
/* The size of an exec, for the shard's pool. */
uint32_t exec_bytes(void);
