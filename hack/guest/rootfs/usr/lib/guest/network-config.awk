# Network configuration, versions 1 and 2, as a list of "word value" lines for the network script.
function trim(s) { sub(/^[ \t]+/, "", s); sub(/[ \t\r]+$/, "", s); gsub(/["']/, "", s); return s }
function indent_of(s) { match(s, /^ */); return RLENGTH }
function yes(s) { return tolower(trim(s)) ~ /^(true|yes|on)$/ }
function words(text, word,   parts, n, i) {
  gsub(/\[/, "", text); gsub(/\]/, "", text)
  n = split(text, parts, ",")
  for (i = 1; i <= n; i++) if (trim(parts[i]) != "") print word " " trim(parts[i])
}
function flush_route() { if (to != "" && via != "") print (to ~ /^(default|0\.0\.0\.0\/0|::\/0)$/ ? "gateway " via : "route " to " via " via); to = via = "" }
function setting(key, value) {
  if (key == "dhcp4") { if (yes(value)) print "dhcp4" }
  else if (key == "dhcp6") { if (yes(value)) print "dhcp6" }
  else if (key == "mtu") print "mtu " trim(value)
  else if (key ~ /^(mac_address|macaddress)$/) print "mac " tolower(trim(value))
  else if (key == "gateway4" || key == "gateway6" || key == "gateway") print "gateway " trim(value)
  else if (key == "to") { flush_route(); to = trim(value) }
  else if (key == "via") { via = trim(value); flush_route() }
  else if (version == 1 && key == "type") { if (trim(value) ~ /^dhcp4?$/) print "dhcp4"; else if (trim(value) ~ /^(dhcp6|ipv6_dhcpv6-stateful)$/) print "dhcp6" }
  else if (version == 1 && key == "name") print "nic " trim(value)
  else if (key == "address" && trim(value) != "") words(value, address_word())
  else if (key == "addresses" && trim(value) != "") words(value, parent == "nameservers" ? "dns" : "address")
  else if (key == "search" && trim(value) != "") words(value, "search")
}
function address_word() { return parent == "nameserver" ? "dns" : "address" }

/^[ \t]*(#|$)/ { next }
/^[ \t]*version:/ { version = trim(substr($0, index($0, ":") + 1)) + 0; next }
{
  indent = indent_of($0); line = trim(substr($0, indent + 1)); dash = 0
  while (line ~ /^-([ \t]|$)/) { sub(/^-[ \t]*/, "", line); dash = 1 }
  if (line !~ /^[A-Za-z0-9_.-]+:([ \t]|$)/) {
    if (dash && list == "addresses") words(line, parent == "nameservers" ? "dns" : "address")
    else if (dash && (list == "address" || list == "dns_nameservers")) words(line, "dns")
    else if (dash && list == "search") words(line, "search")
    next
  }
  key = line; sub(/:.*/, "", key)
  value = line; sub(/^[^:]*:[ \t]*/, "", value)
  if (version == 1 && key == "type" && trim(value) ~ /^(physical|nameserver)$/) { parent = trim(value); next }
  if (key == "nameservers" || key == "routes" || key == "subnets") { parent = key; list = ""; next }
  if (key == "ethernets") { nics_at = -1; in_ethernets = 1; next }
  if (in_ethernets && (nics_at < 0 || indent == nics_at)) { nics_at = indent; parent = ""; print "nic " key; next }
  if (key == "dhcp4" || key ~ /^gateway/ || (key == "addresses" && indent == nics_at + 2)) parent = ""
  list = key
  setting(key, value)
}
END { flush_route() }
