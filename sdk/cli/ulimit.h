/* Resource limits as people write them. */
#pragma once

#include <dsec/dsec.h>

/*
 * "nofile=1024", "nofile=1024:2048", "core=0:unlimited". -EINVAL; -ERANGE: soft is above hard.
 */
int ulimit_parse(const char *text, struct dsec_rlimit *ret);
