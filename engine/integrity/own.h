/*
 * What is a task's own: the repositories that its label OWN_LABEL names, which its sandbox is not
 * to fetch, as the answer may be there. Pure.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#define OWN_LABEL "task.repository"

enum { OWN_FETCH_BYTES_MAX = 2048 };

/* Bytes without an end; they may hold anything. */
struct own_text {
	const char *at;
	size_t bytes;
};

/*
 * A path as a package proxy was asked for it: true where the names of one of `own` stand in it,
 * one after the other, as "/mod/git.example/owner/name/@v/list" has "git.example/owner/name".
 * More than OWN_FETCH_BYTES_MAX: what is beyond is not looked at.
 */
bool own_has_path(struct own_text own, struct own_text path);
/* A host that was asked for: one of `own` is that, or what it is below, and names no path. */
bool own_has_host(struct own_text own, const char *host);
