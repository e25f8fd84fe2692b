/*
 * In place of libc's own, for libarchive alone: names are bytes. A static program's iconv() loads
 * tables and code from wherever it runs, which here is the sandbox; with these it never gets there.
 * libarchive takes the charset for UTF-8 then, and passes on what is no UTF-8 byte by byte.
 */
#include <errno.h>
#include <iconv.h>
#include <langinfo.h>

/* NOLINTBEGIN: the names and types are libc's. */
iconv_t iconv_open(const char *to, const char *from)
{
	(void)to;
	(void)from;
	errno = EINVAL;
	return (iconv_t)-1;
}

size_t iconv(iconv_t converter, char **in, size_t *in_left, char **out, size_t *out_left)
{
	(void)converter;
	(void)in;
	(void)in_left;
	(void)out;
	(void)out_left;
	errno = EBADF;
	return (size_t)-1;
}

int iconv_close(iconv_t converter)
{
	(void)converter;
	errno = EBADF;
	return -1;
}

char *nl_langinfo(nl_item item)
{
	static const char name[] = "UTF-8";

	(void)item;
	return (char *)name;
}
/* NOLINTEND */
