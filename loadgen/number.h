/* Numbers on a command line. */
#pragma once

/* -EINVAL: it is none, or not from `least` to `most`. */
int number_parse(const char *text, double least, double most, double *ret);
