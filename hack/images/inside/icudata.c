/* An ICU without tables: the library asks for them by this symbol, sees that they are none of its own and says so.
   libxml2 then knows the encodings that it has built in (UTF-8, UTF-16, Latin-1, ASCII), which is all that XML from
   and for libvirt uses. */
const unsigned int icudt72_dat[16] = {0};
