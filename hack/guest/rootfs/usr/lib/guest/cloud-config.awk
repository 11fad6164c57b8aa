# Turns the part of #cloud-config that tests use into calls of the functions in cloud-config.sh.
# It reads the YAML that people write by hand: block maps and lists, quoted and plain scalars, | and > blocks,
# [flow, lists] of scalars. Anything else is left alone.

function shell(s) { gsub(/'/, "'\\''", s); return "'" s "'" }
function indent_of(s) { match(s, /^ */); return RLENGTH }
function trim(s) { sub(/^[ \t]+/, "", s); sub(/[ \t\r]+$/, "", s); return s }

function scalar(s) {
  s = trim(s)
  if (s ~ /^".*"$/) {
    s = substr(s, 2, length(s) - 2)
    gsub(/\\\\/, "\001", s); gsub(/\\n/, "\n", s); gsub(/\\t/, "\t", s); gsub(/\\"/, "\"", s); gsub("\001", "\\", s)
    return s
  }
  if (s ~ /^'.*'$/) { s = substr(s, 2, length(s) - 2); gsub(/''/, "'", s); return s }
  sub(/[ \t]+#.*$/, "", s)
  return s
}

# [a, "b, c"] → words[1..n]; a comma inside quotes does not part words.
function flow_list(s, words,   n, i, c, quote, word) {
  s = trim(s); s = substr(s, 2, length(s) - 2)
  n = 0; word = ""; quote = ""
  for (i = 1; i <= length(s); i++) {
    c = substr(s, i, 1)
    if (quote == "" && c == ",") { words[++n] = scalar(word); word = ""; continue }
    if (quote == "" && (c == "\"" || c == "'") && trim(word) == "") quote = c
    else if (c == quote) quote = ""
    word = word c
  }
  if (trim(word) != "") words[++n] = scalar(word)
  return n
}

function command(s,   words, n, i, out) {
  if (trim(s) !~ /^\[.*\]$/) return scalar(s)
  n = flow_list(s, words)
  for (i = 1; i <= n; i++) out = out (i > 1 ? " " : "") shell(words[i])
  return out
}

function emit(name, value) { print name " " shell(value) }

# A finished scalar of the current section: where it belongs.
function item(value) {
  if (section == "runcmd" || section == "bootcmd") emit("cc_" section, command(value))
  else if (section == "ssh_authorized_keys") emit("cc_key", scalar(value))
  else if (section == "users" && scalar(value) ~ /^(ssh-|ecdsa-|sk-)/) emit("cc_key", scalar(value))
}

function pair(key, value) {
  if (section == "write_files") file[key] = value
  else if (section == "chpasswd" && key == "list") chpasswd(value)
  else if (section == "chpasswd" && key == "name") user = value
  else if (section == "chpasswd" && key == "password") emit("cc_chpasswd", user ":" value)
}

function chpasswd(text,   lines, n, i) {
  n = split(text, lines, "\n")
  for (i = 1; i <= n; i++) if (trim(lines[i]) != "") emit("cc_chpasswd", trim(lines[i]))
}

function top(key, value,   words, n, i) {
  if (key ~ /^(hostname|fqdn|password)$/) emit("cc_" key, scalar(value))
  else if (trim(value) ~ /^\[.*\]$/) { n = flow_list(value, words); for (i = 1; i <= n; i++) item("\"" words[i] "\"") }
}

function flush_file() {
  if ("path" in file)
    print "cc_file " shell(file["path"]) " " shell(file["permissions"]) " " shell(file["encoding"]) " " \
      shell(tolower(file["append"])) " " shell(file["content"])
  split("", file)
}

function flush_nested() { if (nested != "") emit("cc_" section, nested); nested = "" }

# Block scalars: lines deeper than their owner, less the first line's indent.
function begin_block(style, key, indent) { block = 1; folded = style ~ /^>/; chomp = style ~ /-/; owner = indent; name = key; text = ""; depth = -1 }
function end_block() {
  block = 0
  sub(/\n+$/, "\n", text)
  if (chomp) sub(/\n$/, "", text)
  if (name == "") { if (section ~ /cmd$/) emit("cc_" section, text); else item(text) } else pair(name, text)
}
function block_line(line,   rest) {
  if (depth < 0 && line !~ /^ *$/) depth = indent_of(line)
  rest = depth < 0 ? "" : substr(line, depth + 1)
  if (folded && text != "" && rest != "") sub(/\n$/, " ", text)
  text = text rest "\n"
}

function key_value(s, indent,   key, value) {
  if (!match(s, /^[A-Za-z0-9_-]+:([ \t]|$)/)) return 0
  key = s; sub(/:.*/, "", key)
  value = s; sub(/^[^:]*:[ \t]*/, "", value)
  if (value ~ /^[|>][-+0-9]*[ \t]*$/) begin_block(value, key, indent)
  else pair(key, scalar(value))
  return 1
}

{ sub(/\r$/, "") }
block && (/^ *$/ || indent_of($0) > owner) { block_line($0); next }
block { end_block() }
/^[ \t]*(#|$)/ || /^---/ { next }
/^[A-Za-z0-9_-]+:/ {
  flush_file(); flush_nested()
  section = $0; sub(/:.*/, "", section)
  value = $0; sub(/^[^:]*:[ \t]*/, "", value)
  top(section, value)
  next
}
{
  indent = indent_of($0); rest = substr($0, indent + 1)
  if (rest ~ /^- - /) { flush_nested(); nested = shell(scalar(substr(rest, 5))); nested_at = indent + 2; next }
  if (nested != "" && indent == nested_at && rest ~ /^- /) { nested = nested " " shell(scalar(substr(rest, 3))); next }
  if (rest ~ /^-([ \t]|$)/) {
    flush_nested()
    rest = trim(substr(rest, 2))
    if (section == "write_files") { flush_file(); if (rest != "") key_value(rest, indent); next }
    if (rest ~ /^[|>][-+0-9]*$/) { begin_block(rest, "", indent); next }
    if (section ~ /^(users|chpasswd)$/ && key_value(rest, indent)) next
    item(rest)
    next
  }
  key_value(rest, indent)
}
END { if (block) end_block(); flush_file(); flush_nested() }
