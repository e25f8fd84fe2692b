/*
 * For the one file of a test program: what never completes, or not before the end, keeps the
 * remote's memory on purpose, since the library may still write to it.
 */
#pragma once

const char *__lsan_default_suppressions(void);
const char *__lsan_default_options(void);

__attribute__((visibility("default"), used)) const char *__lsan_default_suppressions(void)
{
	return "leak:usrbio_open\nleak:ring_make\n";
}

__attribute__((visibility("default"), used)) const char *__lsan_default_options(void)
{
	return "print_suppressions=0";
}
