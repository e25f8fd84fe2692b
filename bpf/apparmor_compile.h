/* apparmor_parser: what makes a profile's text into what the kernel takes. Needs no AppArmor. */
#pragma once

#include <stddef.h>

#define APPARMOR_PARSER "/sbin/apparmor_parser"

/*
 * A memfd with the compiled profile. -ENOENT: there is no parser; -EINVAL: it took the text for
 * wrong, and why says what it said; -ETIMEDOUT. Blocks while the parser runs.
 */
int apparmor_compile(const char *text, size_t bytes, char *ret_why, size_t why_bytes, int *ret_fd);
