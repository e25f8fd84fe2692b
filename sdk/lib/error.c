/*
 * The text behind dsec_error(). Called by every function of libdsec that fails.
 *
 * It is the library's only mutable data outside a connection: one text per thread, since the
 * caller that has no connection (dsec_open failed) needs one too.
 */
#include "sdk/lib/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <dsec/dsec.h>

struct error {
	int result;
	char text[512];
};

static _Thread_local struct error error_last;

int dsec__fail(int r, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	(void)vsnprintf(error_last.text, sizeof(error_last.text), format,
			arguments); /* cut is fine */
	va_end(arguments);
	error_last.result = r;
	return r;
}

const char *dsec_error(struct dsec *d, int64_t result)
{
	(void)d; /* texts belong to threads; the parameter is for texts of a connection's own */
	if (result >= 0)
		return "no error";
	if (error_last.result == result && error_last.text[0])
		return error_last.text;
	return result > -4096 ? strerror((int)-result) : "unknown error";
}
