/*
 * What an exec request asks for, checked and copied: the request may end before its exec does.
 */
#pragma once

#include "engine/request/status.h"

struct exec;
struct request;

/* -> STATUS_OK, or which field is wrong. Whatever was copied is the exec's. */
struct status exec_wish(struct exec *exec, const struct request *request);
