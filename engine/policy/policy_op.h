/*
 * The policy op: check, load, show, list, remove.
 */
#pragma once

struct mail;

/* Delivered on the control thread: a question of a part, see policy_op.c. */
void policy_query_run(struct mail *mail, void *owner);
