"""Audits: what epsilon do outputs prove at least, of mechanisms, groups, gates and trainings?"""
