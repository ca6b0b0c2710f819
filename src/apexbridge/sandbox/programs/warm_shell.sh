LC_ALL=C
read -r -N 8 _
IFS= read -r -d '' n
w=()
while ((n--)); do IFS= read -r -d '' x; w+=("$x"); done
unset LC_ALL n x
export -n PWD OLDPWD SHLVL
exec "${w[@]}"
