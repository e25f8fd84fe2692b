/*
 * In place of functions of libraries, for the file helper alone. A static program's iconv() loads
 * tables and code from wherever it runs, which here is the sandbox; with these it never gets there.
 * libarchive takes the charset for UTF-8 then, and passes on what is no UTF-8 byte by byte. And it
 * keeps what its writers say of a wrong entry beside a table of all formats, with everything that
 * those need.
 */
#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <iconv.h>
#include <langinfo.h>

void __archive_write_entry_filetype_unsupported(struct archive *archive,
						struct archive_entry *entry, const char *format);

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
/* Of an entry whose type a format has no place for. */
void __archive_write_entry_filetype_unsupported(struct archive *archive,
						struct archive_entry *entry, const char *format)
{
	archive_set_error(archive, EOPNOTSUPP, "%s: no such entry in %s",
			  archive_entry_pathname(entry), format);
}
/* NOLINTEND */
